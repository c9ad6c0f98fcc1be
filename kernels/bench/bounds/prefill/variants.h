// Included twice by prefill.cu, with VARIANT defined.
// The compiled variants: VARIANT(identifier, name, Config fields).
VARIANT(Contiguous, "contiguous", .paged = false, .gated = false, .run = 32)
VARIANT(ContiguousGate, "contiguous gate", .paged = false, .gated = true, .run = 32)
VARIANT(ContiguousNatural, "contiguous gate natural order", .paged = false, .gated = true, .run = 2)
VARIANT(Paged, "paged", .paged = true, .gated = false, .run = 4)
VARIANT(PagedGate, "paged gate", .paged = true, .gated = true, .run = 4)
VARIANT(PagedNatural, "paged gate natural order", .paged = true, .gated = true, .run = 2)
VARIANT(PagedNoTurns, "paged gate no turns", .paged = true, .gated = true, .run = 4,
        .turns = false)
VARIANT(PagedSharedQ, "paged gate shared Q", .paged = true, .gated = true, .run = 4,
        .query_registers = false)
VARIANT(PagedRows, "paged gate 128 rows", .paged = true, .gated = true, .run = 4, .heads = 1)
VARIANT(PagedTile64, "paged gate tile 64", .paged = true, .gated = true, .run = 4,
        .tile_keys = 64, .stages = 4)
VARIANT(PagedOverlap, "paged gate overlap", .paged = true, .gated = true, .run = 4,
        .schedule = Schedule::kOverlap)
VARIANT(PagedOverlapFree, "paged gate overlap no turns", .paged = true, .gated = true, .run = 4,
        .schedule = Schedule::kOverlap, .turns = false)
VARIANT(PagedSerial3, "paged gate 192 rows", .paged = true, .gated = true, .run = 4,
        .consumers = 3, .heads = 1, .schedule = Schedule::kSerial, .query_registers = false)
VARIANT(PagedSerial3Free, "paged gate 192 rows no turns", .paged = true, .gated = true, .run = 4,
        .consumers = 3, .heads = 1, .schedule = Schedule::kSerial, .turns = false,
        .query_registers = false)
VARIANT(Paged192Tile64, "paged gate 192 rows tile 64 no turns", .paged = true, .gated = true,
        .run = 4, .tile_keys = 64, .stages = 4, .consumers = 3, .heads = 1, .turns = false,
        .query_registers = false)
VARIANT(PagedOverlapSharedQ, "paged gate overlap shared Q no turns", .paged = true, .gated = true,
        .run = 4, .schedule = Schedule::kOverlap, .turns = false, .query_registers = false)
VARIANT(ContiguousOverlap, "contiguous gate overlap no turns", .paged = false, .gated = true,
        .run = 32, .schedule = Schedule::kOverlap, .turns = false)
VARIANT(PagedLinked, "paged gate linked", .paged = true, .gated = true, .run = 4,
        .schedule = Schedule::kLinked)
VARIANT(PagedLinkedFree, "paged gate linked no turns", .paged = true, .gated = true, .run = 4,
        .schedule = Schedule::kLinked, .turns = false)
VARIANT(PagedLinkedTile64, "paged gate linked tile 64", .paged = true, .gated = true, .run = 4,
        .tile_keys = 64, .stages = 4, .schedule = Schedule::kLinked)
VARIANT(ContiguousLinked, "contiguous gate linked", .paged = false, .gated = true, .run = 32,
        .schedule = Schedule::kLinked)
