"""AsyncI attention in Triton: one kernel over tiles of keys, and the sum of its splits.

Importing this needs triton. All gate options, any block size, any group; see triton_kernels.py.
"""

import triton
import triton.language as tl


@triton.jit
def gate(
    scores, sigma, alpha, clip_min, clip_max, WEIGHTS: tl.constexpr, RELU_PRE: tl.constexpr
):
    """p without gamma [M, N] of the scores of N consecutive keys.

    The first K - 1 columns lack keys to their left: what they get is wrong.
    """
    rectified = tl.maximum(scores, 0.0) if RELU_PRE else scores
    average = rectified * WEIGHTS[0]
    column = tl.broadcast_to(tl.arange(0, scores.shape[1])[None, :], scores.shape)
    for distance in tl.static_range(1, len(WEIGHTS)):
        left = tl.gather(rectified, tl.maximum(column - distance, 0), axis=1)
        average += left * WEIGHTS[distance]
    high_passed = alpha[:, None] * (scores - sigma[:, None] * average)
    return tl.minimum(tl.maximum(high_passed, clip_min), clip_max)


@triton.jit
def load_rows(
    cache, block, slot, inside, kv_head, block_stride, slot_stride, head_stride,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr
):
    """The rows [N, BLOCK_D] of a KV head in the slots `slot` of the blocks `block` (int64), zeros
    where not `inside`."""
    channel = tl.arange(0, BLOCK_D)
    row = cache + block * block_stride + slot.to(tl.int64) * slot_stride + kv_head * head_stride
    return tl.load(row[:, None] + channel[None, :],
                   mask=inside[:, None] & (channel < HEAD_DIM)[None, :], other=0.0)


@triton.jit(do_not_specialize=["table_stride"])
def attend_tiles(
    query, out, partials, k_cache, v_cache, block_table, query_start_loc, seq_lens, sigma, alpha,
    gamma, k_scale, v_scale, scale, clip_min, clip_max, query_stride, query_head_stride, out_stride,
    out_head_stride, k_block_stride, k_slot_stride, k_head_stride, v_block_stride, v_slot_stride,
    v_head_stride, table_stride, block_size, k_scale_stride, v_scale_stride,
    WEIGHTS: tl.constexpr, RELU_PRE: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr,
    QUERIES: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    SEGMENT: tl.constexpr, SPLITS: tl.constexpr
):
    """QUERIES queries of a request, with the GROUP heads of one KV head: BLOCK_M rows or fewer.

    Of the SPLITS programs of these rows, program s takes the segments s, s + SPLITS, ... of SEGMENT
    keys. One program writes `out`; several write partials [R, SPLITS, H, D] float32, for QUERIES 1.
    Tiles of BLOCK_N keys overlap by the K - 1 that the gate's window reaches to the left.
    """
    OVERLAP: tl.constexpr = len(WEIGHTS) - 1
    split = tl.program_id(0) % SPLITS
    first = tl.program_id(0) // SPLITS * QUERIES
    kv_head = tl.program_id(1).to(tl.int64)
    request = tl.program_id(2).to(tl.int64)
    start = tl.load(query_start_loc + request)
    num_queries = tl.load(query_start_loc + request + 1) - start
    num_keys = tl.load(seq_lens + request)
    prefix = num_keys - num_queries
    seen = tl.maximum(tl.minimum(num_keys, prefix + first + QUERIES), 0)
    if first >= num_queries or (SPLITS > 1 and split * SEGMENT >= seen):
        return

    row = tl.arange(0, BLOCK_M)
    position = prefix + first + row // GROUP
    token = (start + first + row // GROUP).to(tl.int64)
    head = kv_head * GROUP + row % GROUP
    exists = (first + row // GROUP < num_queries) & (row < QUERIES * GROUP)
    channel = tl.arange(0, BLOCK_D)
    written = exists[:, None] & (channel < HEAD_DIM)[None, :]
    source = query + (token * query_stride + head * query_head_stride)[:, None]
    q = tl.load(source + channel[None, :], mask=written, other=0.0)
    row_sigma = tl.load(sigma + head, mask=exists, other=0.0)
    row_alpha = tl.load(alpha + head, mask=exists, other=0.0)
    row_gamma = tl.load(gamma + head, mask=exists, other=0.0)
    if k_cache.dtype.element_ty != query.dtype.element_ty:
        scale *= tl.load(k_scale + kv_head * k_scale_stride)
        row_gamma *= tl.load(v_scale + kv_head * v_scale_stride)

    total = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    column = tl.arange(0, BLOCK_N)
    for segment in range(split * SEGMENT, seen, SPLITS * SEGMENT):
        for begin in range(segment, tl.minimum(segment + SEGMENT, seen), BLOCK_N - OVERLAP):
            key = begin - OVERLAP + column
            inside = (key >= 0) & (key < seen)
            block = tl.load(block_table + request * table_stride + key // block_size,
                            mask=inside, other=0).to(tl.int64)
            slot = key % block_size
            k = load_rows(k_cache, block, slot, inside, kv_head, k_block_stride, k_slot_stride,
                          k_head_stride, HEAD_DIM, BLOCK_D)
            scores = tl.dot(q, tl.trans(k.to(q.dtype))) * scale
            p = gate(scores, row_sigma, row_alpha, clip_min, clip_max, WEIGHTS, RELU_PRE)
            inside &= column >= OVERLAP
            p = tl.where(inside[None, :] & (key[None, :] <= position[:, None]), p, 0.0)
            v = load_rows(v_cache, block, slot, inside, kv_head, v_block_stride, v_slot_stride,
                          v_head_stride, HEAD_DIM, BLOCK_D)
            total = tl.dot(p.to(q.dtype), v.to(q.dtype), total)
    total *= row_gamma[:, None]

    if SPLITS == 1:
        target = out + (token * out_stride + head * out_head_stride)[:, None] + channel[None, :]
        tl.store(target, total.to(out.dtype.element_ty), mask=written)
    else:
        heads = tl.num_programs(1) * GROUP
        target = partials + (((request * SPLITS + split) * heads + head) * HEAD_DIM)[:, None]
        tl.store(target + channel[None, :], total, mask=written)


@triton.jit
def sum_splits(
    out, partials, query_start_loc, seq_lens, out_stride, out_head_stride,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, SEGMENT: tl.constexpr, SPLITS: tl.constexpr
):
    """Adds the partials of one head of a request's one query, in the order of the splits."""
    head = tl.program_id(0).to(tl.int64)
    request = tl.program_id(1).to(tl.int64)
    heads = tl.num_programs(0)
    token = tl.load(query_start_loc + request).to(tl.int64)
    if token == tl.load(query_start_loc + request + 1):
        return
    splits = tl.minimum(tl.cdiv(tl.load(seq_lens + request), SEGMENT), SPLITS)
    channel = tl.arange(0, BLOCK_D)
    mask = channel < HEAD_DIM
    total = tl.zeros((BLOCK_D,), dtype=tl.float32)
    for split in range(splits):
        row = (request * SPLITS + split) * heads + head
        total += tl.load(partials + row * HEAD_DIM + channel, mask=mask, other=0.0)
    target = out + token * out_stride + head * out_head_stride + channel
    tl.store(target, total.to(out.dtype.element_ty), mask=mask)
