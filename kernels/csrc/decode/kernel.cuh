// The decode kernel. A warp works by itself, everything in flight held in registers, until a
// segment ends. It asks for the next keys, the next segment's too, before it waits for the values.
#pragma once

#include "segment_ends.cuh"

namespace asynct::decode {

// Two buffers for the warps' sums: those of the next segment may come before these are added.
template <class Math>
constexpr int SumValues(int group_heads) {
  return kDecodeWarps * group_heads * Math::kHeadDim;
}

template <class Math>
constexpr int SharedBytes(int group_heads) {
  return kDecodeWarps * static_cast<int>(sizeof(typename Math::Query)) +
         2 * SumValues<Math>(group_heads) * static_cast<int>(sizeof(float));
}

template <class Math, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    DecodePagedKernel(const __grid_constant__ DecodeParams p) {
  using Row = typename Math::Row;
  extern __shared__ uint4 shared[];
  auto* queries = reinterpret_cast<typename Math::Query*>(shared);
  auto* sums = reinterpret_cast<float*>(queries + kDecodeWarps);
  const int warp = threadIdx.x / 32;
  const int stretch = gridDim.y;
  int listed = blockIdx.y;
  DecodeSegment segment = load_segment(p, listed);  // with the count, though it may not be there
  const int segments = *p.schedule.count;
  if (listed >= segments) return;

  __shared__ BlockState block;
  if (threadIdx.x == 0) block = {head_group(p.attention), segments, 0};
  __syncthreads();
  const int kv_head = block.group.kv_head;
  Math math(queries[warp], p.attention, block.group);
  SegmentEnds<Math> ends(p, block);
  PageWords<Row> k, v;
  // Asks for what a segment begins with: its queries, and, into the registers of V, the keys before
  // the warp's first page.
  const auto ask = [&](int token, const PageRun& run) {
    math.load_query(p.attention, block.group, token);
    load_rows<KeyLanes, Row>(v, p.key, kv_head, run.place_before,
                             run.place_before < 0 ? 0 : Math::kRowsBefore);
  };

  PageRun run = page_run(p.attention, segment, p.schedule.segment_keys);
  load_rows<KeyLanes, Row>(k, p.key, kv_head, run.place(0), run.rows(0));
  ask(segment.token, run);
  for (int parity = 0; listed < block.segments; parity ^= 1, listed += stretch) {
    const bool more = listed + stretch < block.segments;
    if (more) segment = load_segment(p, listed + stretch);
    PageRun next;
    math.begin();
    math.enter(v);
    const int pages = max(run.pages(), 1);
    for (int page = 0; page < pages; ++page) {
      if (page > 0) math.accumulate(v);
      const uint32_t wanted = math.score(k, run.rows(page));
      load_rows<ValueLanes, Row>(v, p.value, kv_head, run.place(page), wanted);
      if (page == 0 && more) next = page_run(p.attention, segment, p.schedule.segment_keys);
      const bool last = page + 1 == pages;
      load_rows<KeyLanes, Row>(k, p.key, kv_head, last ? next.place(0) : run.place(page + 1),
                               last ? next.rows(0) : run.rows(page + 1));
    }
    math.accumulate(v);
    float* block_sums = sums + parity * SumValues<Math>(block.group.heads);
    math.store(block_sums + warp * block.group.heads * Math::kHeadDim);
    if (more) ask(segment.token, next);
    ends.pass(listed, block_sums);
    run = next;
  }
  ends.pass(listed, sums);
  ends.pass(listed + stretch, sums);
}

}  // namespace asynct::decode
