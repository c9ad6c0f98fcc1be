// The decode kernel. A warp works by itself, everything in flight held in registers, until a
// segment ends. It asks for the next keys, the next segment's too, before it waits for the values.
#pragma once

#include "asynct/ptx/dependent_launch.cuh"
#include "segment_ends.cuh"

namespace asynct::decode {

// Two buffers for the warps' sums: those of the next segment may come before these are added.
template <class Math>
constexpr int SumValues(int group_heads) {
  return kDecodeWarps * group_heads * Math::kHeadDim;
}

template <class Math>
constexpr int SharedBytes(int group_heads) {
  return static_cast<int>(sizeof(typename Math::Shared)) +
         2 * SumValues<Math>(group_heads) * static_cast<int>(sizeof(float));
}

template <class Math, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    DecodePagedKernel(const __grid_constant__ DecodeParams p) {
  using Row = typename Math::Row;
  extern __shared__ uint4 shared[];
  auto* math_shared = reinterpret_cast<typename Math::Shared*>(shared);
  auto* sums = reinterpret_cast<float*>(math_shared + 1);
  const int warp = threadIdx.x / 32;
  const int stretch = gridDim.z;
  const int kv_head = blockIdx.y;
  int listed = blockIdx.z;
  ptx::launch_dependents();
  ptx::wait_for_kernel_ahead();
  DecodeSegment segment = load_segment(p, listed);  // with the count, though it may not be there
  const DecodeCount count = *p.schedule.count;
  if (listed >= count.segments) return;

  PageRun run = page_run(p, segment, count.segment_keys);
  PageWords<Row> k, v;
  load_rows<KeyLanes, Row>(k, p.key, kv_head, run.place(0), run.cached_rows(0));
  Math math(p, *math_shared);
  math.ask(p, segment, run, 0);
  math.receive(p, listed, run, 0);
  __syncthreads();
  SegmentEnds<Math> ends(p, count);
  for (int parity = 0; listed < ends.segments(); parity ^= 1, listed += stretch) {
    const bool more = listed + stretch < ends.segments();
    if (more) segment = load_segment(p, listed + stretch);
    PageRun next;
    math.begin(parity);
    const int pages = max(run.pages(), 1);
    for (int page = 0; page < pages; ++page) {
      if (page > 0) math.accumulate(v);
      const bool has_newest = run.has_newest(page);
      if (has_newest) math.insert_key(k, run.cached % kPageKeys, parity);
      const uint32_t wanted = math.score(k, run.rows(page));
      load_rows<ValueLanes, Row>(v, p.value, kv_head, run.place(page),
                                 wanted & run.cached_rows(page));
      if (has_newest) math.insert_value(v, run.cached % kPageKeys, parity, wanted);
      if (page == 0 && more) {
        next = page_run(p, segment, ends.segment_keys());
        math.ask(p, segment, next, parity ^ 1);
      }
      const bool last = page + 1 == pages;
      load_rows<KeyLanes, Row>(k, p.key, kv_head, last ? next.place(0) : run.place(page + 1),
                               last ? next.cached_rows(0) : run.cached_rows(page + 1));
    }
    math.accumulate(v);
    float* block_sums = sums + parity * SumValues<Math>(head_group(p).heads);
    math.store(block_sums + warp * head_group(p).heads * Math::kHeadDim);
    if (more) math.receive(p, listed + stretch, next, parity ^ 1);
    ends.pass(listed, block_sums);
    run = next;
  }
  ends.drain(listed);
}

}  // namespace asynct::decode
