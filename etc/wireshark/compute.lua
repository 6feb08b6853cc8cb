-- Wireshark: in-network compute of switchd and hostd. Copy this file to the folder "Personal Lua Plugins" (Help,
-- About Wireshark, Folders), or:
--
--   tshark -X lua_script:etc/wireshark/compute.lua -r FILE -Y inc
--
-- The fields are described in docs/compute.md. The port is a preference: none is assigned.

local inc = Proto("inc", "In-network Compute")
inc.prefs.port = Pref.uint("UDP port", 4795, "compute.port of switchd.toml")

local HEADER = 48
local KINDS = { "CONTRIBUTION", "RESULT", "ERROR", "JOIN", "ADMIT", "REFUSE", "KEEPALIVE", "ALIVE", "LEAVE", "LEFT" }
local COLLECTIVES = { [0] = "allreduce", "reduce", "broadcast", "barrier" }
local OPERATIONS = { "sum", "product", "min", "max", "and", "or", "xor" }
local ELEMENTS = { "i32", "i64", "u32", "u64", "f16", "bf16", "f32", "f64" }
local SIZES = { 4, 8, 4, 8, 2, 2, 4, 8 }
local REASONS = {
    [0] = "finished", "member lost", "member left", "mismatch", "unknown job", "stale epoch", "parent lost",
    "superseded", "deleted", "full", "too many jobs", "not capable", "no parents", "rank taken",
    "member missing", "wrong terms", "not allowed", "stale generation", "bad request",
}

local f = inc.fields
f.version = ProtoField.uint8("inc.version", "Version", base.DEC)
f.kind = ProtoField.uint8("inc.kind", "Kind", base.DEC, KINDS)
f.retransmission = ProtoField.bool("inc.retransmission", "Retransmission", 8, nil, 0x01)
f.partial = ProtoField.bool("inc.partial", "Partial", 8, nil, 0x02)
f.ce = ProtoField.bool("inc.ce", "Congestion experienced", 8, nil, 0x04)
f.root = ProtoField.bool("inc.root", "Root", 8, nil, 0x08)
f.last = ProtoField.bool("inc.last", "Last chunk of its collective", 8, nil, 0x10)
f.shared = ProtoField.bool("inc.shared", "Shared: a reduce whose result all get", 8, nil, 0x20)
f.collective = ProtoField.uint8("inc.collective", "Collective", base.DEC, COLLECTIVES)
f.operation = ProtoField.uint8("inc.operation", "Operation", base.DEC, OPERATIONS)
f.element = ProtoField.uint8("inc.element", "Element", base.DEC, ELEMENTS)
f.job = ProtoField.uint32("inc.job", "Job", base.HEX)
f.epoch = ProtoField.uint32("inc.epoch", "Epoch", base.DEC)
f.rank = ProtoField.uint16("inc.rank", "Rank", base.DEC)
f.slot = ProtoField.uint16("inc.slot", "Slot", base.DEC)
f.slot_version = ProtoField.uint8("inc.slot_version", "Version of the slot", base.DEC)
f.sequence = ProtoField.uint64("inc.sequence", "Sequence", base.DEC)
f.contributions = ProtoField.uint64("inc.contributions", "Contributions", base.HEX)
f.complete = ProtoField.uint16("inc.complete", "Complete beyond the slots before", base.DEC)
f.length = ProtoField.uint16("inc.length", "Length", base.DEC)
f.checksum = ProtoField.uint32("inc.checksum", "Checksum", base.HEX)
f.tag = ProtoField.bytes("inc.tag", "Tag")
f.data = ProtoField.bytes("inc.data", "Vector")
f.reason = ProtoField.uint8("inc.reason", "Reason", base.DEC, REASONS)
f.level = ProtoField.uint8("inc.level", "Levels above who found it", base.DEC)
f.world = ProtoField.uint16("inc.world", "World rank", base.DEC)
f.parents = ProtoField.uint16("inc.parents", "Parents that there are", base.DEC)
f.generation = ProtoField.uint32("inc.generation", "Generation", base.DEC)
f.size = ProtoField.uint16("inc.size", "Members", base.DEC)
f.slots = ProtoField.uint16("inc.slots", "Slots", base.DEC)
f.payload = ProtoField.uint16("inc.payload", "Most bytes of a vector", base.DEC)
f.operations = ProtoField.uint8("inc.operations", "Operations", base.HEX)
f.elements = ProtoField.uint8("inc.elements", "Elements", base.HEX)
f.deterministic = ProtoField.bool("inc.deterministic", "Deterministic")
f.levels = ProtoField.uint8("inc.levels", "Levels above", base.DEC)
f.above_rank = ProtoField.uint16("inc.above.rank", "Rank of the switch", base.DEC)
f.above_size = ProtoField.uint16("inc.above.size", "Switches", base.DEC)
f.above_trees = ProtoField.uint16("inc.above.trees", "Trees", base.DEC)
f.above_first = ProtoField.uint16("inc.above.first", "First switch above", base.DEC)
f.lease = ProtoField.uint32("inc.lease", "Lease (ms)", base.DEC)
local wrong = ProtoExpert.new("inc.wrong", "Not as it should be", expert.group.MALFORMED, expert.severity.ERROR)
inc.experts = { wrong }

-- Of the datagram that a message is in; in a tunnel that is the last.
local udp_checksum = Field.new("udp.checksum")

local function has_udp_checksum()
    local all = { udp_checksum() }
    return #all > 0 and all[#all].value ~= 0
end

local function show_verdict(tree, bytes)
    tree:add(f.reason, bytes(0, 1))
    tree:add(f.level, bytes(1, 1))
    if bytes(0, 1):uint() == 12 and bytes(2, 2):uint() ~= 0xffff then
        tree:add(f.parents, bytes(2, 2))
    else
        local world = tree:add(f.world, bytes(2, 2))
        if bytes(2, 2):uint() == 0xffff then
            world:append_text(" (nobody)")
        end
    end
    tree:add(f.generation, bytes(4, 4))
end

local function show_join(tree, bytes)
    tree:add(f.generation, bytes(0, 4))
    tree:add(f.world, bytes(4, 2))
    tree:add(f.size, bytes(6, 2))
    tree:add(f.slots, bytes(8, 2))
    tree:add(f.payload, bytes(10, 2))
    tree:add(f.operations, bytes(12, 1))
    tree:add(f.elements, bytes(13, 1))
    tree:add(f.deterministic, bytes(14, 1), bytes(14, 1):uint() == 1)
    tree:add(f.levels, bytes(15, 1))
    for level = 0, math.min(bytes(15, 1):uint(), 3) - 1 do
        local at = 16 + 8 * level
        local above = tree:add(inc, bytes(at, 8), "Level " .. (level + 1))
        above:add(f.above_rank, bytes(at, 2))
        above:add(f.above_size, bytes(at + 2, 2))
        above:add(f.above_trees, bytes(at + 4, 2))
        above:add(f.above_first, bytes(at + 6, 2))
    end
end

local function show_terms(tree, bytes)
    tree:add(f.slots, bytes(0, 2))
    tree:add(f.payload, bytes(2, 2))
    tree:add(f.lease, bytes(4, 4))
    tree:add(f.generation, bytes(8, 4))
end

-- Payloads of fixed length, by kind.
local BODIES = {
    [3] = { 8, show_verdict }, [4] = { 40, show_join }, [5] = { 16, show_terms }, [6] = { 8, show_verdict },
    [7] = { 0 }, [8] = { 0 }, [9] = { 8, show_verdict }, [10] = { 0 },
}

local function show_chunk(tree, bytes, length)
    local collective, operation = bytes(2, 1):bitfield(0, 4), bytes(2, 1):bitfield(4, 4)
    local element = bytes(3, 1):uint()
    tree:add(f.collective, bytes(2, 1), collective)
    if collective < 2 then
        tree:add(f.operation, bytes(2, 1), operation)
        tree:add(f.element, bytes(3, 1))
        if not OPERATIONS[operation] or not SIZES[element] or (operation >= 5 and element >= 5) then
            tree:add_proto_expert_info(wrong, "No such operation on such elements")
        elseif length % SIZES[element] ~= 0 then
            tree:add_proto_expert_info(wrong, "The vector is not whole elements")
        end
    elseif collective > 3 then
        tree:add_proto_expert_info(wrong, "No such collective")
    end
    if collective ~= 0 and bytes(1, 1):bitfield(2, 1) == 1 then
        tree:add_proto_expert_info(wrong, "Shared, and no allreduce")
    end
    tree:add(f.slot, bytes(14, 2), bytes(14, 2):bitfield(0, 15))
    tree:add(f.slot_version, bytes(15, 1), bytes(15, 1):bitfield(7, 1))
    tree:add(f.sequence, bytes(16, 8))
    tree:add(f.contributions, bytes(24, 8))
    if bytes(0, 1):bitfield(4, 4) == 2 then
        tree:add(f.complete, bytes(34, 2))
    end
end

function inc.dissector(bytes, pinfo, root)
    pinfo.cols.protocol = "INC"
    local tree = root:add(inc, bytes())
    local whole = bytes:reported_len()
    if whole < HEADER then
        tree:add_proto_expert_info(wrong, "The header is cut")
        return bytes:len()
    end
    -- A capture may have kept less of the packet than came.
    if bytes:len() < HEADER then
        tree:append_text(" (cut by the capture)")
        return bytes:len()
    end
    local version, kind = bytes(0, 1):bitfield(0, 4), bytes(0, 1):bitfield(4, 4)
    tree:add(f.version, bytes(0, 1), version)
    tree:add(f.kind, bytes(0, 1), kind)
    if version ~= 1 then
        tree:add_proto_expert_info(wrong, "An unknown version")
        return bytes:len()
    end
    local name = KINDS[kind] or "unknown"
    tree:append_text(": " .. name)
    pinfo.cols.info = name
    for _, flag in ipairs({ f.retransmission, f.partial, f.ce, f.root }) do
        tree:add(flag, bytes(1, 1))
    end
    if kind == 1 then
        tree:add(f.last, bytes(1, 1))
        tree:add(f.shared, bytes(1, 1))
    end
    local flags = bytes(1, 1):uint()
    if flags > 0x3f or (flags > 0x0f and kind ~= 1) then
        tree:add_proto_expert_info(wrong, "A flag that it cannot have")
    end
    local length = bytes(32, 2):uint()
    if kind == 1 or kind == 2 then
        show_chunk(tree, bytes, length)
    end
    tree:add(f.job, bytes(4, 4))
    tree:add(f.epoch, bytes(8, 4))
    tree:add(f.rank, bytes(12, 2))
    tree:add(f.length, bytes(32, 2))
    tree:add(f.checksum, bytes(36, 4))
    tree:add(f.tag, bytes(40, 8))
    if whole - HEADER ~= length then
        tree:add_proto_expert_info(wrong, "Another length than the datagram has")
        return bytes:len()
    end
    if bytes:len() < whole then
        tree:append_text(" (cut by the capture)")
        return bytes:len()
    end
    local body = BODIES[kind]
    if kind == 1 or kind == 2 then
        if length > 0 then
            tree:add(f.data, bytes(HEADER, length))
        end
    elseif not body then
        tree:add_proto_expert_info(wrong, "An unknown kind")
    elseif not has_udp_checksum() then
        tree:add_proto_expert_info(wrong, "Without the checksum of UDP")
    elseif body[1] ~= length then
        tree:add_proto_expert_info(wrong, "Another length than its kind has")
    elseif body[2] then
        body[2](tree, bytes(HEADER, length))
    end
    return bytes:len()
end

local ports = DissectorTable.get("udp.port")

-- By which port it is registered.
local registered

local function register()
    if registered then
        ports:remove(registered, inc)
    end
    registered = inc.prefs.port
    ports:add(registered, inc)
end

function inc.prefs_changed()
    register()
end

function inc.init()
    register()
end

register()
