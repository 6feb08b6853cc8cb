-- Wireshark: what hostd adds to RoCEv2. Copy this file to the folder "Personal Lua Plugins" (Help, About
-- Wireshark, Folders), or:
--
--   tshark -X lua_script:etc/wireshark/mpeh.lua -r FILE -Y mpeh
--
-- It shows what Wireshark's own dissector of InfiniBand leaves out:
--
--   mpeh        packets of multipath connections (opcodes 0xC0 to 0xDF): MPEH, extension header, the
--               headers that the operation brings, selective acknowledgements, and marks of packets
--   mpeh_offer  offers of multipath in REQ and REP of connection management
--
-- The fields are described in docs/transport.md. A packet with the DSCP of the preference "Trimmed DSCP"
-- counts as trimmed: a switch may have cut its payload off, and its ICRC with it.

local mpeh = Proto("mpeh", "Multipath Extended Header")
local offer = Proto("mpeh_offer", "Offer of multipath")
mpeh.prefs.trimmed = Pref.uint("Trimmed DSCP", 42, "DSCP that switches give packets whose payload they cut off")

local operations = {
    [0x00] = "SEND First", [0x01] = "SEND Middle", [0x02] = "SEND Last", [0x03] = "SEND Last with Immediate",
    [0x04] = "SEND Only", [0x05] = "SEND Only with Immediate", [0x06] = "RDMA WRITE First",
    [0x07] = "RDMA WRITE Middle", [0x08] = "RDMA WRITE Last", [0x09] = "RDMA WRITE Last with Immediate",
    [0x0a] = "RDMA WRITE Only", [0x0b] = "RDMA WRITE Only with Immediate", [0x0c] = "RDMA READ Request",
    [0x0d] = "RDMA READ Response First", [0x0e] = "RDMA READ Response Middle",
    [0x0f] = "RDMA READ Response Last", [0x10] = "RDMA READ Response Only", [0x11] = "Acknowledge",
    [0x12] = "ATOMIC Acknowledge", [0x13] = "CmpSwap", [0x14] = "FetchAdd",
    [0x16] = "SEND Last with Invalidate", [0x17] = "SEND Only with Invalidate",
}
-- Which operations have which headers.
local function set(...)
    local all = {}
    for _, operation in ipairs({ ... }) do
        all[operation] = true
    end
    return all
end
local ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE = 0x11, 0x12
local has_reth = set(0x06, 0x0a, 0x0b, 0x0c)
local has_atomic = set(0x13, 0x14)
local has_aeth = set(0x0d, 0x0f, 0x10, 0x11, 0x12)
local has_immediate = set(0x03, 0x05, 0x09, 0x0b)
local has_invalidate = set(0x16, 0x17)
local has_no_payload = set(0x0c, 0x11, 0x12, 0x13, 0x14)

local f = mpeh.fields
f.opcode = ProtoField.uint8("mpeh.opcode", "Operation", base.HEX, operations)
f.pad = ProtoField.uint8("mpeh.pad", "Padding", base.DEC, nil, 0x30)
f.destqp = ProtoField.uint24("mpeh.destqp", "Destination queue pair", base.HEX)
f.ack = ProtoField.bool("mpeh.ack_request", "Acknowledge request", 8, nil, 0x80)
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
f.clock = ProtoField.uint16("mpeh.tag.clock", "Sender's clock (4.096 us)", base.DEC, nil, 0xff80)
f.movable = ProtoField.bool("mpeh.tag.movable", "Switches may choose its way", 16, nil, 0x0040)
f.priority = ProtoField.uint16("mpeh.tag.priority", "Priority", base.DEC,
    { [0] = "normal", [1] = "low", [2] = "high" }, 0x0030)
f.pattern = ProtoField.uint16("mpeh.tag.pattern", "Pattern", base.DEC,
    { [0] = "not told", [1] = "pairs", [2] = "many to one", [3] = "all to all" }, 0x000c)
f.block_class = ProtoField.uint16("mpeh.tag.blocks", "Blocks", base.DEC,
    { [0] = "not told", [1] = "to 16 KiB", [2] = "to 1 MiB", [3] = "longer" }, 0x0003)
f.delay = ProtoField.uint16("mpeh.tag.delay", "One-way delay (32 ns)", base.DEC)
f.reserved = ProtoField.uint16("mpeh.reserved", "Reserved", base.HEX)
f.length = ProtoField.uint8("mpeh.ext.length", "Extension length (words)", base.DEC)
f.blocks = ProtoField.uint8("mpeh.ext.blocks", "Blocks", base.HEX)
f.cookie = ProtoField.bytes("mpeh.ext.cookie", "Cookie")
f.signed = ProtoField.bool("mpeh.reflection.valid", "There was a tag")
f.signed_path = ProtoField.uint8("mpeh.reflection.path", "Path that it came by", base.DEC)
f.signal = ProtoField.uint8("mpeh.reflection.signal", "Signal", base.DEC,
    { [0] = "min(ABW)", [1] = "min(ABW/C)", [2] = "max(PD)" })
f.value = ProtoField.uint32("mpeh.reflection.value", "Value", base.DEC)
f.locator = ProtoField.uint16("mpeh.reflection.locator", "Locator", base.HEX)
f.metered = ProtoField.bool("mpeh.utilisation.valid", "There was telemetry")
f.beyond = ProtoField.bool("mpeh.utilisation.cut", "There are hops beyond those that were told of")
f.hop = ProtoField.uint8("mpeh.utilisation.hop", "Hop, from 1 next to the sender", base.DEC)
f.metered_path = ProtoField.uint8("mpeh.utilisation.path", "Path that they came by", base.DEC)
f.in_flight = ProtoField.uint64("mpeh.utilisation.in_flight", "In flight (1024ths of what the link takes)", base.DEC)
f.queue = ProtoField.uint64("mpeh.utilisation.queue", "Queue (bytes)", base.DEC)
f.speed = ProtoField.uint64("mpeh.utilisation.speed", "Speed (kbit/s)", base.DEC)
f.kind = ProtoField.uint8("mpeh.change.kind", "Kind", base.DEC,
    { [1] = "change asked for", [2] = "change answered", [3] = "path probed", [4] = "probe answered" })
f.fields = ProtoField.uint8("mpeh.change.fields", "Fields that change", base.HEX)
f.outcome = ProtoField.uint8("mpeh.change.outcome", "Outcome", base.DEC,
    { [0] = "done", [1] = "later", [2] = "refused" })
f.probed = ProtoField.uint8("mpeh.change.path", "Path probed", base.DEC)
f.serial = ProtoField.uint16("mpeh.change.serial", "Serial", base.DEC)
f.made = ProtoField.uint16("mpeh.change.made", "Receiver's change that was made last", base.DEC)
f.granularity = ProtoField.uint8("mpeh.change.granularity", "Granularity", base.DEC,
    { [0] = "flow", [1] = "flowlet", [2] = "packet" })
f.packets = ProtoField.uint16("mpeh.change.packets", "Reorder tolerance (packets)", base.DEC)
f.time = ProtoField.uint16("mpeh.change.time", "Reorder tolerance (us)", base.DEC)
f.timeout = ProtoField.uint16("mpeh.change.timeout", "Flowlet time-out (us)", base.DEC)
f.paths = ProtoField.bytes("mpeh.change.paths", "Sub-paths in force")
f.unknown = ProtoField.bytes("mpeh.ext.unknown", "Blocks that are not known")
f.va = ProtoField.uint64("mpeh.reth.va", "Remote address", base.HEX)
f.rkey = ProtoField.uint32("mpeh.reth.rkey", "Remote key", base.HEX)
f.dmalen = ProtoField.uint32("mpeh.reth.length", "Length", base.DEC)
f.swap = ProtoField.uint64("mpeh.atomic.swap", "Swap or add", base.HEX)
f.compare = ProtoField.uint64("mpeh.atomic.compare", "Compare", base.HEX)
f.original = ProtoField.uint64("mpeh.atomic.original", "Original value", base.HEX)
f.syndrome = ProtoField.uint8("mpeh.aeth.syndrome", "Syndrome", base.HEX)
f.msn = ProtoField.uint24("mpeh.aeth.msn", "Message sequence number", base.DEC)
f.immediate = ProtoField.uint32("mpeh.immediate", "Immediate data", base.HEX)
f.invalidate = ProtoField.uint32("mpeh.invalidate", "Key to invalidate", base.HEX)
f.bitmap = ProtoField.bytes("mpeh.sack.bitmap", "Bitmap")
f.arrived = ProtoField.uint24("mpeh.sack.arrived", "Arrived out of order", base.DEC)
f.trigger = ProtoField.uint24("mpeh.sack.trigger", "Acknowledged for", base.DEC)
f.marks = ProtoField.uint8("mpeh.sack.marks", "Marks follow", base.DEC)
f.base = ProtoField.uint24("mpeh.marks.base", "Base", base.DEC)
f.crowd = ProtoField.uint8("mpeh.marks.crowd", "Crowd (code)", base.DEC)
f.crowded = ProtoField.uint32("mpeh.marks.crowd.count", "Crowd", base.DEC)
f.marked_bits = ProtoField.bytes("mpeh.marks.marked_bitmap", "Bitmap of marked packets")
f.marked = ProtoField.uint24("mpeh.marks.marked", "Came with Congestion Experienced", base.DEC)
f.trimmed_bits = ProtoField.bytes("mpeh.marks.trimmed_bitmap", "Bitmap of trimmed packets")
f.cut = ProtoField.uint24("mpeh.marks.trimmed", "Came without payload", base.DEC)
f.trimmed = ProtoField.bool("mpeh.trimmed", "Trimmed")
f.payload = ProtoField.bytes("mpeh.payload", "Payload")
f.icrc = ProtoField.uint32("mpeh.icrc", "Invariant CRC", base.HEX)
local wrong = ProtoExpert.new("mpeh.wrong", "Not as it should be", expert.group.MALFORMED,
    expert.severity.ERROR)
mpeh.experts = { wrong }

local o = offer.fields
o.version = ProtoField.uint8("mpeh_offer.version", "Version", base.DEC)
o.flow = ProtoField.bool("mpeh_offer.flow", "Granularity flow", 8, nil, 0x01)
o.flowlet = ProtoField.bool("mpeh_offer.flowlet", "Granularity flowlet", 8, nil, 0x02)
o.packet = ProtoField.bool("mpeh_offer.packet", "Granularity packet", 8, nil, 0x04)
o.marks = ProtoField.bool("mpeh_offer.marks", "Marks of packets are understood", 8, nil, 0x08)
o.mtu = ProtoField.uint8("mpeh_offer.mtu", "Path MTU", base.DEC,
    { [1] = "256", [2] = "512", [3] = "1024", [4] = "2048", [5] = "4096" }, 0xf0)
o.paths = ProtoField.uint16("mpeh_offer.paths", "Sub-paths at most", base.DEC)
o.packets = ProtoField.uint16("mpeh_offer.reorder_packets", "Reorder tolerance (packets)", base.DEC)
o.micros = ProtoField.uint16("mpeh_offer.reorder_us", "Reorder tolerance (us)", base.DEC)
o.buffer = ProtoField.uint16("mpeh_offer.reorder_buffer", "Reorder buffer (packets)", base.DEC)
o.timeout = ProtoField.uint16("mpeh_offer.flowlet_us", "Flowlet time-out (us)", base.DEC)
o.cookie = ProtoField.bytes("mpeh_offer.cookie", "Cookie")
o.blocks = ProtoField.uint8("mpeh_offer.blocks", "Blocks that are understood", base.HEX, nil, 0x3f)
o.service = ProtoField.uint8("mpeh_offer.service", "Delivery service", base.DEC,
    { [0] = "ordered", [1] = "unordered", [2] = "idempotent" }, 0xc0)
o.data = ProtoField.uint8("mpeh_offer.data_length", "Bytes of application data", base.DEC)
o.compact = ProtoField.uint16("mpeh_offer.compact_tpid", "TPID of compact CSIG tags", base.HEX)
o.expanded = ProtoField.uint16("mpeh_offer.expanded_tpid", "TPID of expanded CSIG tags", base.HEX)
o.int = ProtoField.uint16("mpeh_offer.int_tpid", "TPID of INT tags", base.HEX)
local absurd = ProtoExpert.new("mpeh_offer.absurd", "Nobody takes this offer", expert.group.PROTOCOL,
    expert.severity.NOTE)
offer.experts = { absurd }

local CHANGE = 48
local REFLECTION = 8
local UTILISATION = 8
-- The most hops that telemetry tells of, and the most bytes that an extension has.
local HOPS, EXTENSION_MAX = 5, 80
local BTH, MPEH, EXTENSION, SACK, MARKS, ICRC = 12, 8, 8, 36, 36, 4
-- Behind BTH and DETH; its last bytes are those of the private data of REQ and REP.
local MAD_AT, MAD, OFFER = 20, 256, 24
-- TPIDs before the offer.
local TPIDS = 8
local REQ, REP = 0x10, 0x13
local UD_SEND_ONLY = 0x64

-- Frames of one packet are seen more than once; UDP payloads are taken from the field.
local payload = Field.new("udp.payload")
local port = Field.new("udp.dstport")
local dscp4 = Field.new("ip.dsfield.dscp")
local dscp6 = Field.new("ipv6.tclass.dscp")

-- Reads headers one after the other; says once if one of them is cut.
local function reader(bytes, at, tree)
    local it = { at = at, whole = true }
    function it.take(name, len)
        if it.whole and bytes:len() < it.at + len then
            tree:add_proto_expert_info(wrong, name .. " is cut")
            it.whole = false
        end
        if not it.whole then
            return nil
        end
        it.at = it.at + len
        return bytes(it.at - len, len)
    end
    return it
end

-- Block 0 of the extension.
local function change(range, tree)
    local block = tree:add(range, "Change")
    local kind = range(0, 1):uint()
    block:add(f.kind, range(0, 1))
    block:add(f.serial, range(2, 2))
    if kind == 1 then
        block:add(f.fields, range(1, 1))
        block:add(f.made, range(4, 2))
        block:add(f.granularity, range(6, 1))
        block:add(f.packets, range(8, 2))
        block:add(f.time, range(10, 2))
        block:add(f.timeout, range(12, 2))
        block:add(f.paths, range(16, 32))
    elseif kind == 2 then
        block:add(f.outcome, range(1, 1))
    elseif kind == 3 or kind == 4 then
        block:add(f.probed, range(1, 1))
    else
        block:add_proto_expert_info(wrong, "An unknown kind of change")
    end
end

-- Block 1 of the extension.
local function reflection(range, tree)
    local block = tree:add(range, "Reflection of a CSIG tag")
    local flags = range(0, 1):uint()
    block:add(f.signed, range(0, 1), flags >= 0x80)
    block:add(f.signed_path, range(1, 1))
    if flags < 0x80 then
        return
    end
    local signal, value, locator
    if flags % 2 == 1 then
        local word = range(4, 3):uint()
        signal, value, locator = math.floor(word / 0x100000), word % 0x100000, range(2, 2):uint()
    else
        local word = range(2, 2):uint()
        signal, value, locator = math.floor(word / 0x2000), math.floor(word / 0x80) % 0x20, word % 0x80
    end
    block:add(f.signal, range(2, 6), signal)
    block:add(f.value, range(2, 6), value)
    block:add(f.locator, range(2, 6), locator)
end

-- A number of eleven bits of mantissa behind five of exponent.
local function scaled(range)
    local word = range:uint()
    return UInt64(word % 0x800) * UInt64(2 ^ math.floor(word / 0x800))
end

-- Block 2 of the extension.
local function utilisation(range, tree)
    local block = tree:add(range, "Worst link of a path")
    local flags = range(0, 1):uint()
    block:add(f.metered, range(0, 1), flags >= 0x80)
    block:add(f.metered_path, range(1, 1))
    if flags < 0x80 then
        return
    end
    local hop = flags % 0x10
    block:add(f.beyond, range(0, 1), math.floor(flags / 0x40) % 2 == 1)
    block:add(f.hop, range(0, 1), hop)
    block:add(f.in_flight, range(2, 2), scaled(range(2, 2)))
    block:add(f.queue, range(4, 2), scaled(range(4, 2)))
    block:add(f.speed, range(6, 2), scaled(range(6, 2)))
    if hop < 1 or hop > HOPS or range(6, 2):uint() % 0x800 == 0 then
        block:add_proto_expert_info(wrong, "There is no such hop, or its speed is zero")
    end
end

local function extension(bytes, read, tree)
    local at = read.at
    if bytes:len() < at + EXTENSION then
        read.take("The extension", EXTENSION)
        return
    end
    local length = bytes(at, 1):uint() * 4
    local blocks = bytes(at + 1, 1):uint()
    -- The blocks that are known, in the order in which they stand.
    local known, present = EXTENSION, {}
    for bit, block in ipairs({ { change, CHANGE }, { reflection, REFLECTION }, { utilisation, UTILISATION } }) do
        if math.floor(blocks / 2 ^ (bit - 1)) % 2 == 1 then
            table.insert(present, { block[1], known, block[2] })
            known = known + block[2]
        end
    end
    if length < known or length > EXTENSION_MAX or (blocks < 8) ~= (length == known) then
        tree:add_proto_expert_info(wrong, "The extension has a wrong length")
        read.whole = false
        return
    end
    local range = read.take("The extension", length)
    if not range then
        return
    end
    local ext = tree:add(range, "Extension")
    ext:add(f.length, range(0, 1))
    ext:add(f.blocks, range(1, 1))
    ext:add(f.cookie, range(2, 6))
    for _, block in ipairs(present) do
        block[1](range(block[2], block[3]), ext)
    end
    if length > known then
        ext:add(f.unknown, range(known, length - known))
    end
end

-- Adds a field for each packet of which the bit is set: bit i of byte i/8 says it of packet first + i.
local function packets(tree, field, range, first)
    for byte = 0, range:len() - 1 do
        local bits = range(byte, 1):uint()
        for bit = 0, 7 do
            if bits % 2 == 1 then
                tree:add(field, range(byte, 1), (first + byte * 8 + bit) % 0x1000000)
            end
            bits = math.floor(bits / 2)
        end
    end
end

local function crowd_of(code)
    if code < 16 then
        return code
    end
    local exponent, digits = math.floor((code - 16) / 8) + 1, (code - 16) % 8
    return math.min((8 + digits) * 2 ^ exponent, 0xffffffff)
end

local function acknowledgement(read, tree, psn)
    local range = read.take("The SACK", SACK)
    if not range then
        return
    end
    local sack = tree:add(range, "Selective acknowledgement")
    packets(sack:add(f.bitmap, range(0, 32)), f.arrived, range(0, 32), psn + 1)
    sack:add(f.trigger, range(32, 3))
    sack:add(f.marks, range(35, 1))
    local follows = range(35, 1):uint()
    if follows > 1 then
        tree:add_proto_expert_info(wrong, "The last byte of the SACK is neither 0 nor 1")
    end
    if follows ~= 1 then
        return
    end
    range = read.take("The block of marks", MARKS)
    if not range then
        return
    end
    local marks = tree:add(range, "Marks of packets")
    local first = range(0, 3):uint()
    marks:add(f.base, range(0, 3))
    local crowd = marks:add(f.crowd, range(3, 1))
    if range(3, 1):uint() ~= 0 then
        crowd:add(f.crowded, range(3, 1), crowd_of(range(3, 1):uint()))
    end
    packets(marks:add(f.marked_bits, range(4, 16)), f.marked, range(4, 16), first)
    packets(marks:add(f.trimmed_bits, range(20, 16)), f.cut, range(20, 16), first)
end

-- The headers that the operation brings.
local function extended(read, tree, operation, psn)
    local function add(name, len, ...)
        local range = read.take(name, len)
        if not range then
            return
        end
        local header, at = tree:add(range, name), 0
        for _, field in ipairs({ ... }) do
            header:add(field[1], range(at, field[2]))
            at = at + field[2]
        end
    end
    if has_reth[operation] then
        add("RETH", 16, { f.va, 8 }, { f.rkey, 4 }, { f.dmalen, 4 })
    end
    if has_atomic[operation] then
        add("AtomicETH", 28, { f.va, 8 }, { f.rkey, 4 }, { f.swap, 8 }, { f.compare, 8 })
    end
    if has_aeth[operation] then
        add("AETH", 4, { f.syndrome, 1 }, { f.msn, 3 })
    end
    if operation == ACKNOWLEDGE then
        acknowledgement(read, tree, psn)
    end
    if operation == ATOMIC_ACKNOWLEDGE then
        add("AtomicAckETH", 8, { f.original, 8 })
    end
    if has_immediate[operation] then
        add("ImmDt", 4, { f.immediate, 4 })
    end
    if has_invalidate[operation] then
        add("IETH", 4, { f.invalidate, 4 })
    end
end

local function behind(bytes, read, tree, operation, trimmed)
    if trimmed then
        -- What a switch leaves may end anywhere behind the headers.
        if read.whole and bytes:len() > read.at then
            tree:add(f.payload, bytes(read.at))
        end
        return
    end
    local length = bytes:len() - read.at - ICRC
    if not read.whole then
        return
    end
    if length < 0 then
        read.take("The ICRC", ICRC)
        return
    end
    if length > 0 and has_no_payload[operation] then
        tree:add_proto_expert_info(wrong, "Payload where there is none")
    elseif length > 0 then
        tree:add(f.payload, bytes(read.at, length))
    end
    tree:add_le(f.icrc, bytes(read.at + length, ICRC))
end

local function multipath(bytes, pinfo, root)
    local operation = bytes(0, 1):uint() - 0xc0
    local tree = root:add(mpeh, bytes(0))
    tree:add(f.opcode, bytes(0, 1), operation)
    if not operations[operation] then
        tree:add_proto_expert_info(wrong, "No such operation")
        return
    end
    tree:add(f.pad, bytes(1, 1))
    tree:add(f.destqp, bytes(5, 3))
    tree:add(f.ack, bytes(8, 1))
    tree:add(f.psn, bytes(9, 3))
    local read = reader(bytes, BTH, tree)
    local range = read.take("The MPEH", MPEH)
    if not range then
        return
    end
    tree:add(f.path, range(0, 1))
    local flags = tree:add(f.flags, range(1, 1))
    local named, most = { f.boundary, f.switched, f.probe, f.congestion }, 0x0f
    if operation == ACKNOWLEDGE then
        named, most = { f.reorder, f.loss, f.probe }, 0x07
    end
    for _, field in ipairs(named) do
        flags:add(field, range(1, 1))
    end
    if range(1, 1):uint() > most then
        tree:add_proto_expert_info(wrong, "Flags that have no meaning are set")
    end
    tree:add(f.flowlet, range(2, 2))
    local tag = tree:add(f.tag, range(4, 2))
    if operation == ACKNOWLEDGE then
        tag:add(f.delay, range(4, 2))
    else
        for _, field in ipairs({ f.clock, f.movable, f.priority, f.pattern, f.block_class }) do
            tag:add(field, range(4, 2))
        end
    end
    tree:add(f.reserved, range(6, 2))
    if range(6, 2):uint() ~= 0 then
        tree:add_proto_expert_info(wrong, "The reserved bytes are not zero")
    end
    extension(bytes, read, tree)
    extended(read, tree, operation, bytes(9, 3):uint())
    local dscp = dscp4() or dscp6()
    local trimmed = dscp and dscp.value == mpeh.prefs.trimmed or false
    tree:add(f.trimmed, bytes(0), trimmed):set_generated()
    behind(bytes, read, tree, operation, trimmed)
    local name = trimmed and "MPEH trimmed path " or "MPEH path "
    pinfo.cols.info:prepend(name .. range(0, 1):uint() .. " " .. operations[operation] .. " ")
end

local function negotiation(bytes, root)
    local attribute = bytes(MAD_AT + 16, 2):uint()
    if bytes(MAD_AT + 1, 1):uint() ~= 0x07 or (attribute ~= REQ and attribute ~= REP) then
        return
    end
    local range = bytes(MAD_AT + MAD - OFFER, OFFER)
    if range(0, 4):string() ~= "MPR1" then
        return
    end
    local tree = root:add(offer, range)
    tree:add(o.version, range(4, 1))
    if range(4, 1):uint() ~= 2 then
        tree:add_proto_expert_info(absurd, "Not version 2")
        return
    end
    for _, field in ipairs({ o.flow, o.flowlet, o.packet, o.marks, o.mtu }) do
        tree:add(field, range(5, 1))
    end
    for n, field in ipairs({ o.paths, o.packets, o.micros, o.buffer, o.timeout }) do
        tree:add(field, range(4 + 2 * n, 2))
    end
    tree:add(o.cookie, range(16, 6))
    tree:add(o.blocks, range(22, 1))
    tree:add(o.service, range(22, 1))
    tree:add(o.data, range(23, 1))
    local bits = range(5, 1):uint()
    local mtu, room = math.floor(bits / 16), attribute == REQ and 32 or 172
    if bits % 8 == 0 or mtu < 1 or mtu > 5 or range(6, 2):uint() == 0 or range(12, 2):uint() == 0
        or range(23, 1):uint() > room then
        tree:add_proto_expert_info(absurd)
    end
    local told = bytes(MAD_AT + MAD - OFFER - TPIDS, TPIDS)
    if range(23, 1):uint() + TPIDS <= room and told(0, 2):string() == "TP" then
        for n, field in ipairs({ o.compact, o.expanded, o.int }) do
            tree:add(field, told(2 * n, 2))
        end
    end
end

function mpeh.dissector(_, pinfo, root)
    local info, to = payload(), port()
    if not info or not to or to.value ~= 4791 then
        return
    end
    local bytes = info.range:bytes():tvb("MPEH")
    if bytes:len() < BTH then
        return
    end
    local opcode = bytes(0, 1):uint()
    if opcode >= 0xc0 and opcode <= 0xdf then
        multipath(bytes, pinfo, root)
    elseif opcode == UD_SEND_ONLY and bytes(5, 3):uint() == 1 and bytes:len() >= MAD_AT + MAD then
        negotiation(bytes, root)
    end
end

register_postdissector(mpeh)
