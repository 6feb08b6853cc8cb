-- Wireshark: CSIG, congestion signals in a tag of the link header. Copy this file to the folder "Personal
-- Lua Plugins" (Help, About Wireshark, Folders), or:
--
--   tshark -X lua_script:etc/wireshark/csig.lua -r FILE -Y csig
--
-- Both forms are shown field by field, behind VLAN tags, too, and then the packet. The fields are described
-- in docs/csig.md. The TPIDs are preferences: none is assigned.

local csig = Proto("csig", "Congestion Signal")
csig.prefs.compact = Pref.uint("TPID of compact tags", 0x9900, "compact_tpid of switchd.toml")
csig.prefs.expanded = Pref.uint("TPID of expanded tags", 0x9901, "expanded_tpid of switchd.toml")
csig.prefs.telemetry = Pref.uint("TPID of telemetry", 0x9902, "int.tpid of switchd.toml; no such tag may follow")

local signals = { [0] = "min(ABW)", [1] = "min(ABW/C)", [2] = "max(PD)" }

local f = csig.fields
f.form = ProtoField.string("csig.form", "Form")
f.signal = ProtoField.uint8("csig.signal", "Signal", base.DEC, signals)
f.value = ProtoField.uint32("csig.value", "Value", base.DEC)
f.locator = ProtoField.uint16("csig.locator", "Locator", base.HEX)
f.final = ProtoField.bool("csig.final", "Not to be updated")
f.reserved = ProtoField.uint8("csig.reserved", "Reserved", base.HEX)
f.kind = ProtoField.uint16("csig.type", "Type", base.HEX)
local wrong = ProtoExpert.new("csig.wrong", "Not as it should be", expert.group.MALFORMED,
    expert.severity.ERROR)
csig.experts = { wrong }

local types = DissectorTable.get("ethertype")

-- The fields behind the TPID: signal, value, locator, whether it is final, reserved bits.
local function fields(range, is_compact)
    if is_compact then
        local word = range(0, 2):uint()
        return math.floor(word / 0x2000), math.floor(word / 0x80) % 0x20, word % 0x80,
            math.floor(word / 0x1000) % 2 == 1, 0
    end
    local word, last = range(2, 3):uint(), range(5, 1):uint()
    return math.floor(word / 0x100000), word % 0x100000, range(0, 2):uint(), last >= 0x80, last % 0x80
end

local function dissect(bytes, pinfo, root, is_compact)
    local len = is_compact and 2 or 6
    local tree = root:add(csig, bytes(0, math.min(len + 2, bytes:len())))
    if bytes:len() < len + 2 then
        tree:add_proto_expert_info(wrong, "The tag is cut")
        return bytes:len()
    end
    local range = bytes(0, len)
    local signal, value, locator, final, reserved = fields(range, is_compact)
    tree:add(f.form, range, is_compact and "compact" or "expanded")
    tree:add(f.signal, range, signal)
    tree:add(f.value, range, value)
    tree:add(f.locator, range, locator)
    tree:add(f.final, range, final)
    if not is_compact then
        tree:add(f.reserved, range(5, 1), reserved)
    end
    if not signals[signal] then
        tree:add_proto_expert_info(wrong, "A signal that is reserved")
    end
    local kind = bytes(len, 2):uint()
    tree:add(f.kind, bytes(len, 2))
    tree:append_text(": " .. (signals[signal] or ("signal " .. signal)) .. " " .. value .. " at " .. locator)
    local tags = { csig.prefs.compact, csig.prefs.expanded, csig.prefs.telemetry, 0x8100, 0x88a8 }
    local is_tag = false
    for _, tag in ipairs(tags) do
        is_tag = is_tag or kind == tag
    end
    if is_tag then
        tree:add_proto_expert_info(wrong, "Another tag behind it")
    end
    types:try(kind, bytes(len + 2):tvb(), pinfo, root)
    return bytes:len()
end

local compact = Proto("csig_compact", "Congestion Signal, compact")
local expanded = Proto("csig_expanded", "Congestion Signal, expanded")

function compact.dissector(bytes, pinfo, root)
    return dissect(bytes, pinfo, root, true)
end

function expanded.dissector(bytes, pinfo, root)
    return dissect(bytes, pinfo, root, false)
end

-- By which types the two are registered.
local registered = {}

local function register()
    for kind, dissector in pairs(registered) do
        types:remove(kind, dissector)
    end
    registered = { [csig.prefs.compact] = compact, [csig.prefs.expanded] = expanded }
    for kind, dissector in pairs(registered) do
        types:add(kind, dissector)
    end
end

function csig.prefs_changed()
    register()
end

function csig.init()
    register()
end

register()
