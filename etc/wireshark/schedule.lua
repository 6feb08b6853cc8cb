-- Wireshark: what both ends of a link tell each other about how they spread packets, and about pauses. Copy
-- this file to the folder "Personal Lua Plugins" (Help, About Wireshark, Folders), or:
--
--   tshark -X lua_script:etc/wireshark/schedule.lua -r FILE -Y fsa
--
-- The fields are described in docs/traffic-manager.md. The EtherType is the first one for local experiments:
-- other protocols may use it, too, and are left to the others.

local fsa = Proto("fsa", "Fabric Scheduling Announcement")

local ETHERTYPE = 0x88b5
local HEAD, NAME_MAX = 9, 63
local PAUSE, PAUSE_LEN, ASK = 1, 8, 2

local ROLES = { [0] = "host", "switch" }
local SPREADS = { [0] = "nothing", "flows", "flowlets", "packets" }
local TYPES = { [PAUSE] = "pauses", [ASK] = "asks to be told" }

local f = fsa.fields
f.role = ProtoField.uint8("fsa.role", "Role", base.DEC, ROLES)
f.spread = ProtoField.uint8("fsa.spread", "Spreads", base.DEC, SPREADS)
f.seconds = ProtoField.uint16("fsa.seconds", "Holds for (s)", base.DEC)
f.length = ProtoField.uint8("fsa.name_length", "Bytes of the name", base.DEC)
f.name = ProtoField.string("fsa.name", "Name")
f.type = ProtoField.uint8("fsa.field.type", "Type", base.DEC, TYPES)
f.size = ProtoField.uint8("fsa.field.length", "Length", base.DEC)
f.response = ProtoField.uint32("fsa.pause.response", "Time until a pause is obeyed (ns; 0: not known)", base.DEC)
f.backlog = ProtoField.uint32("fsa.pause.backlog", "Bytes that still leave then", base.DEC)
f.asks = ProtoField.bool("fsa.asks", "Has heard nothing, and asks to be told")
f.value = ProtoField.bytes("fsa.field.value", "Value")
local wrong = ProtoExpert.new("fsa.wrong", "Not as it should be", expert.group.MALFORMED,
    expert.severity.ERROR)
fsa.experts = { wrong }

-- The fields behind the name, up to a type of zero or the end of the frame.
local function fields(bytes, at, tree)
    while at < bytes:len() and bytes(at, 1):uint() ~= 0 do
        local kind = bytes(at, 1):uint()
        local len = at + 2 <= bytes:len() and bytes(at + 1, 1):uint()
        if not len or at + 2 + len > bytes:len() then
            tree:add_proto_expert_info(wrong, "A field is cut")
            return
        end
        local field = tree:add(bytes(at, 2 + len), "Field: " .. (TYPES[kind] or ("type " .. kind)))
        field:add(f.type, bytes(at, 1))
        field:add(f.size, bytes(at + 1, 1))
        if kind == PAUSE and len >= PAUSE_LEN then
            field:add(f.response, bytes(at + 2, 4))
            field:add(f.backlog, bytes(at + 6, 4))
        elseif kind == PAUSE then
            field:add_proto_expert_info(wrong, "A field is cut")
        elseif kind == ASK then
            field:add(f.asks, bytes(at, 2 + len), true)
        elseif len > 0 then
            field:add(f.value, bytes(at + 2, len))
        end
        at = at + 2 + len
    end
end

function fsa.dissector(bytes, pinfo, root)
    if bytes:len() < 4 or bytes(0, 3):string() ~= "FSA" then
        return 0
    end
    local tree = root:add(fsa, bytes())
    pinfo.cols.protocol = "FSA"
    if bytes(3, 1):string() ~= "1" then
        tree:add_proto_expert_info(wrong, "An unknown version")
        return bytes:len()
    end
    if bytes:len() < HEAD then
        tree:add_proto_expert_info(wrong, "The announcement is cut")
        return bytes:len()
    end
    local role, spread, len = bytes(4, 1):uint(), bytes(5, 1):uint(), bytes(8, 1):uint()
    tree:add(f.role, bytes(4, 1))
    tree:add(f.spread, bytes(5, 1))
    tree:add(f.seconds, bytes(6, 2))
    tree:add(f.length, bytes(8, 1))
    if not ROLES[role] then
        tree:add_proto_expert_info(wrong, "An unknown role")
    end
    if not SPREADS[spread] then
        tree:add_proto_expert_info(wrong, "An unknown way to spread packets")
    end
    if len > NAME_MAX or HEAD + len > bytes:len() then
        tree:add_proto_expert_info(wrong, "The name is too long or cut")
        return bytes:len()
    end
    local name = ""
    if len > 0 then
        name = bytes(HEAD, len):string(ENC_UTF_8)
        tree:add(f.name, bytes(HEAD, len), name)
    end
    local what = (ROLES[role] or "somebody") .. " " .. name .. " spreads " .. (SPREADS[spread] or "something")
    tree:append_text(": " .. what)
    pinfo.cols.info = what
    fields(bytes, HEAD + len, tree)
    return bytes:len()
end

DissectorTable.get("ethertype"):add(ETHERTYPE, fsa)
