// Decode with every load in flight held in registers: no shared memory and no barrier until a
// segment ends. A block's warps are kHeads KV heads times kSplits stretches of one segment; a warp
// takes kPages pages at a time, and with kAhead asks for its next K before it waits for its V.
#pragma once

#include "pages.cuh"
#include "partials.cuh"

namespace asynct::bounds {

template <class Math, Fetch kFetch, int kPages, bool kAhead>
__device__ __forceinline__ void attend_pages(Math& math, const PageRun& run) {
  uint4 k[kPages][kLoads], v[kPages][kLoads];
  const auto load_keys = [&](int first) {
#pragma unroll
    for (int i = 0; i < kPages; ++i) {
      const int page = first + i;
      load_page<typename Math::KeyRows, kFetch>(k[i], run.k + run.block(page), run.token_stride,
                                                page < run.pages ? run.rows(page) : 0);
    }
  };
  // The window of the first keys: scores of the two keys before them, from the last two rows of
  // the page before.
  const char* before = run.k + run.block_before * run.block_stride;
  load_page<typename Math::KeyRows, kFetch>(v[0], before, run.token_stride,
                                            run.first_key > 0 && run.pages > 0 ? 0xc000 : 0);
  load_keys(0);
  math.score(0, v[0], kAllRows);

  for (int first = 0; first < run.pages; first += kPages) {
    uint32_t wanted[kPages];
#pragma unroll
    for (int i = 0; i < kPages; ++i) {
      const int page = first + i;
      wanted[i] = math.score(i, k[i], page < run.pages ? run.rows(page) : 0);
    }
#pragma unroll
    for (int i = 0; i < kPages; ++i) {
      load_page<typename Math::ValueRows, kFetch>(v[i], run.v + run.block(first + i),
                                                  run.token_stride, wanted[i]);
    }
    if (kAhead) load_keys(first + kPages);
#pragma unroll
    for (int i = 0; i < kPages; ++i) math.accumulate(i, v[i]);
    if (!kAhead) load_keys(first + kPages);
  }
}

template <class Math, Fetch kFetch, int kHeads, int kSplits, int kPages, bool kAhead,
          int kMinBlocks>
__global__ void __launch_bounds__(32 * kHeads * kSplits, kMinBlocks)
    register_kernel(const __grid_constant__ Params p) {
  __shared__ float sums[2][kSplits * kHeads * Math::kValues];
  const int warp = threadIdx.x / 32;
  const int head_groups = p.kv_heads / kHeads;
  const int tasks = static_cast<int>(p.work_capacity) * head_groups;
  int parity = 0;
  for (int task = blockIdx.x; task < tasks; task += gridDim.x, parity ^= 1) {
    const int index = task / head_groups;
    const WorkItem item = p.work[index];
    if (item.request < 0) break;
    const int first_head = task % head_groups * kHeads;
    const int head = first_head + warp % kHeads;
    const PageRun run = page_run(p, item, head, warp / kHeads, kSplits);
    Math math(p, item.request, head);
    attend_pages<Math, kFetch, kPages, kAhead>(math, run);
    math.store(sums[parity] + warp * Math::kValues);
    add_partials<Math, kHeads, kSplits>(p, item, index, first_head, sums[parity]);
  }
}

}  // namespace asynct::bounds
