-- Wireshark: the multipath extended header (MPEH) and its extension header in RoCEv2 packets of hostd.
--
-- Copy this file to the folder "Personal Lua Plugins" (Help, About Wireshark, Folders), or:
--
--   tshark -X lua_script:etc/wireshark/mpeh.lua -r FILE -Y mpeh
--
-- It shows what Wireshark's own dissector of InfiniBand leaves out: opcodes 0xC0 to 0xDF. The fields
-- are described in docs/requirements.md (MPEH) and docs/transport.md (extension).

local mpeh = Proto("mpeh", "Multipath Extended Header")
local f = mpeh.fields
f.opcode = ProtoField.uint8("mpeh.opcode", "Operation", base.HEX)
f.destqp = ProtoField.uint24("mpeh.destqp", "Destination queue pair", base.HEX)
f.psn = ProtoField.uint24("mpeh.psn", "Packet sequence number", base.DEC)
f.path = ProtoField.uint8("mpeh.path", "Path ID", base.DEC)
f.flags = ProtoField.uint8("mpeh.flags", "Flags", base.HEX)
f.boundary = ProtoField.bool("mpeh.flags.f", "Flowlet boundary", 8, nil, 0x01)
f.switched = ProtoField.bool("mpeh.flags.s", "Sub-path switch", 8, nil, 0x02)
f.probe = ProtoField.bool("mpeh.flags.p", "Probe", 8, nil, 0x04)
f.congestion = ProtoField.bool("mpeh.flags.c", "Congestion", 8, nil, 0x08)
f.reorder = ProtoField.bool("mpeh.flags.r", "Reordering seen", 8, nil, 0x01)
f.loss = ProtoField.bool("mpeh.flags.l", "Loss suspected", 8, nil, 0x02)
f.flowlet = ProtoField.uint16("mpeh.flowlet", "Flowlet sequence", base.DEC)
f.tag = ProtoField.uint16("mpeh.tag", "Scheduling tag", base.DEC)
f.reserved = ProtoField.uint16("mpeh.reserved", "Reserved", base.HEX)
f.length = ProtoField.uint8("mpeh.ext.length", "Extension length (words)", base.DEC)
f.blocks = ProtoField.uint8("mpeh.ext.blocks", "Blocks", base.HEX)
f.cookie = ProtoField.bytes("mpeh.ext.cookie", "Cookie")
f.unknown = ProtoField.bytes("mpeh.ext.unknown", "Blocks that are not known")
f.trigger = ProtoField.uint24("mpeh.sack.trigger", "Acknowledged for", base.DEC)
f.bitmap = ProtoField.bytes("mpeh.sack.bitmap", "Arrived beyond the first gap")
local wrong = ProtoExpert.new("mpeh.wrong", "Not as it should be", expert.group.MALFORMED,
    expert.severity.ERROR)
mpeh.experts = { wrong }

local BTH, MPEH, SACK, ACKNOWLEDGE = 12, 8, 36, 0x11
-- Frames of one packet are seen more than once; UDP payloads are taken from the field.
local payload = Field.new("udp.payload")
local port = Field.new("udp.dstport")

local function extension(bytes, at, tree)
    if bytes:len() < at + 8 then
        tree:add_proto_expert_info(wrong, "The extension is cut")
        return nil
    end
    local length = bytes(at, 1):uint() * 4
    if length < 8 or length > 64 or bytes:len() < at + length then
        tree:add_proto_expert_info(wrong, "The extension has a wrong length")
        return nil
    end
    local ext = tree:add(bytes(at, length), "Extension")
    ext:add(f.length, bytes(at, 1))
    ext:add(f.blocks, bytes(at + 1, 1))
    ext:add(f.cookie, bytes(at + 2, 6))
    if length > 8 then
        ext:add(f.unknown, bytes(at + 8, length - 8))
    end
    return at + length
end

function mpeh.dissector(_, pinfo, root)
    local info, to = payload(), port()
    if not info or not to or to.value ~= 4791 then
        return
    end
    local bytes = info.range:bytes():tvb("MPEH")
    if bytes:len() < BTH + MPEH or bytes(0, 1):uint() < 0xc0 or bytes(0, 1):uint() > 0xdf then
        return
    end
    local operation = bytes(0, 1):uint() - 0xc0
    local tree = root:add(mpeh, bytes(0))
    tree:add(f.opcode, bytes(0, 1), operation)
    tree:add(f.destqp, bytes(5, 3))
    tree:add(f.psn, bytes(9, 3))
    tree:add(f.path, bytes(BTH, 1))
    local flags = tree:add(f.flags, bytes(BTH + 1, 1))
    local named = { f.boundary, f.switched, f.probe, f.congestion }
    if operation == ACKNOWLEDGE then
        named = { f.reorder, f.loss, f.probe }
    end
    for _, field in ipairs(named) do
        flags:add(field, bytes(BTH + 1, 1))
    end
    tree:add(f.flowlet, bytes(BTH + 2, 2))
    tree:add(f.tag, bytes(BTH + 4, 2))
    tree:add(f.reserved, bytes(BTH + 6, 2))
    if bytes(BTH + 6, 2):uint() ~= 0 then
        tree:add_proto_expert_info(wrong, "The reserved bytes are not zero")
    end
    local at = extension(bytes, BTH + MPEH, tree)
    if at and operation == ACKNOWLEDGE and bytes:len() >= at + 4 + SACK then
        tree:add(f.bitmap, bytes(at + 4, 32))
        tree:add(f.trigger, bytes(at + 36, 3))
    end
    pinfo.cols.info:prepend("MPEH path " .. bytes(BTH, 1):uint() .. " ")
end

register_postdissector(mpeh)
