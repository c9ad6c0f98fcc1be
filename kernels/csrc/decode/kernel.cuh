// The decode kernel. A warp works by itself, everything in flight held in registers, until a segment
// ends. It asks for the next keys, the next segment's too, before it waits for the values.
#pragma once

#include "partials.cuh"

namespace asynct::decode {

// Two buffers for the sums: a warp that is done with the next segment need not wait until all sums
// of this one are added.
template <class Math>
constexpr int SumValues(const DecodeParams& p) {
  return kDecodeWarps * (p.ratio < kGroupHeads ? p.ratio : kGroupHeads) * Math::kHeadDim;
}

template <class Math>
constexpr int SharedBytes(const DecodeParams& p) {
  return kDecodeWarps * static_cast<int>(sizeof(typename Math::Query)) + 2 * SumValues<Math>(p) * 4;
}

template <class Math, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    DecodePagedKernel(const __grid_constant__ DecodeParams p) {
  using Row = typename Math::Row;
  extern __shared__ uint4 shared[];
  auto* queries = reinterpret_cast<typename Math::Query*>(shared);
  auto* sums = reinterpret_cast<float*>(queries + kDecodeWarps);
  const int warp = threadIdx.x / 32;
  const int tasks = *p.schedule.count * p.groups;
  int index = blockIdx.x;
  if (index >= tasks) return;

  Math math(queries[warp]);
  PageWords<Row> k, v;
  const auto find_pages = [&](int index) {
    return page_run(p.attention, load_task(p, index).segment, p.schedule.segment_keys);
  };
  // Asks for what a task begins with: its queries, and, into the registers of V, the keys before the
  // warp's first page.
  const auto ask = [&](int index, const PageRun& run) {
    const Task task = load_task(p, index);
    const HeadGroup group = head_group(p, task.group);
    load_rows<KeyLanes, Row>(v, p.key, group.kv_head, run.place_before,
                             run.place_before < 0 ? 0 : Math::kRowsBefore);
    math.load_query(p, group, task.segment.token);
  };

  PageRun run = find_pages(index);
  load_rows<KeyLanes, Row>(k, p.key, head_group(p, index % p.groups).kv_head, run.place(0),
                           run.rows(0));
  ask(index, run);
  for (int parity = 0;; parity ^= 1) {
    const int next = index + static_cast<int>(gridDim.x);
    const HeadGroup group = head_group(p, index % p.groups);
    const int next_kv_head = head_group(p, next % p.groups).kv_head;
    PageRun next_run;
    math.begin(p, group);
    math.enter(v);
    const int pages = max(run.pages(), 1);
    for (int page = 0; page < pages; ++page) {
      if (page > 0) math.accumulate(v);
      const uint32_t wanted = math.score(k, run.rows(page));
      load_rows<ValueLanes, Row>(v, p.value, group.kv_head, run.place(page), wanted);
      if (page == 0 && next < tasks) next_run = find_pages(next);
      const bool last = page + 1 == pages;
      load_rows<KeyLanes, Row>(k, p.key, last ? next_kv_head : group.kv_head,
                               last ? next_run.place(0) : run.place(page + 1),
                               last ? next_run.rows(0) : run.rows(page + 1));
    }
    math.accumulate(v);
    float* block_sums = sums + parity * SumValues<Math>(p);
    math.store(block_sums + warp * group.heads * Math::kHeadDim);
    if (next < tasks) ask(next, next_run);
    add_sums<Math>(p, load_task(p, index), block_sums);
    if (next >= tasks) return;
    index = next;
    run = next_run;
  }
}

}  // namespace asynct::decode
