-- Wireshark: INT, telemetry of switches in a tag of the link header. Copy this file to the folder "Personal
-- Lua Plugins" (Help, About Wireshark, Folders), or:
--
--   tshark -X lua_script:etc/wireshark/int.lua -r FILE -Y int
--
-- The tag is shown hop by hop, behind VLAN tags, too, and then the packet. The fields are described in
-- docs/int.md. The TPID is a preference: none is assigned.

local int = Proto("int", "In-band Telemetry")
int.prefs.tpid = Pref.uint("TPID", 0x9902, "int.tpid of switchd.toml")

local HOPS, HOP_LEN = 5, 12
local LEN = 2 + HOPS * HOP_LEN -- behind the TPID

local f = int.fields
f.version = ProtoField.uint8("int.version", "Version", base.DEC)
f.full = ProtoField.bool("int.full", "No room for a further hop")
f.hops = ProtoField.uint8("int.hops", "Hops", base.DEC)
f.sent = ProtoField.uint32("int.sent", "Sent (bytes)", base.DEC)
f.time = ProtoField.uint32("int.time", "Time (ns)", base.DEC)
f.queue = ProtoField.uint64("int.queue", "Queue (bytes)", base.DEC)
f.speed = ProtoField.uint64("int.speed", "Speed (kbit/s)", base.DEC)
f.kind = ProtoField.uint16("int.type", "Type", base.HEX)
local wrong = ProtoExpert.new("int.wrong", "Not as it should be", expert.group.MALFORMED,
    expert.severity.ERROR)
int.experts = { wrong }

local types = DissectorTable.get("ethertype")

-- A number of eleven bits of mantissa behind five of exponent.
local function number(range)
    local word = range:uint()
    return UInt64(word % 0x800) * UInt64(2 ^ math.floor(word / 0x800))
end

local function show_hop(tree, range, place)
    local hop = tree:add(int, range, "Hop " .. place)
    hop:add(f.sent, range(0, 4))
    hop:add(f.time, range(4, 4))
    hop:add(f.queue, range(8, 2), number(range(8, 2)))
    hop:add(f.speed, range(10, 2), number(range(10, 2)))
end

function int.dissector(bytes, pinfo, root)
    local tree = root:add(int, bytes(0, math.min(LEN + 2, bytes:len())))
    if bytes:len() < LEN + 2 then
        tree:add_proto_expert_info(wrong, "The tag is cut")
        return bytes:len()
    end
    local flags, hops = bytes(0, 1):uint(), bytes(1, 1):uint()
    tree:add(f.version, bytes(0, 1), math.floor(flags / 16))
    tree:add(f.full, bytes(0, 1), math.floor(flags / 8) % 2 == 1)
    tree:add(f.hops, bytes(1, 1))
    if flags >= 16 then
        tree:add_proto_expert_info(wrong, "An unknown version")
    end
    if hops > HOPS then
        tree:add_proto_expert_info(wrong, "It tells of more hops than it has room for")
    end
    for place = 1, math.min(hops, HOPS) do
        show_hop(tree, bytes(2 + (place - 1) * HOP_LEN, HOP_LEN), place)
    end
    local kind = bytes(LEN, 2):uint()
    tree:add(f.kind, bytes(LEN, 2))
    tree:append_text(": " .. hops .. " hops")
    if kind == int.prefs.tpid or kind == 0x9900 or kind == 0x9901 or kind == 0x8100 or kind == 0x88a8 then
        tree:add_proto_expert_info(wrong, "Another tag behind it")
    end
    types:try(kind, bytes(LEN + 2):tvb(), pinfo, root)
    return bytes:len()
end

-- By which type it is registered.
local registered

local function register()
    if registered then
        types:remove(registered, int)
    end
    registered = int.prefs.tpid
    types:add(registered, int)
end

function int.prefs_changed()
    register()
end

function int.init()
    register()
end

register()
