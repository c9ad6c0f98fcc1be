// Decode with the loads in flight in shared memory: each warp owns a ring of kStages pages of K and
// as many of V, filled by cp.async or by the copy engine, a row a copy. V of a page is waited for
// kStages pages after it was asked for.
#pragma once

#include "pages.cuh"
#include "partials.cuh"

namespace asynct::bounds {

// Rows in shared memory stand so that the eight lanes of a phase, two neighbouring rows of four
// chunks, meet no bank twice.
constexpr int kPageBytes = kPageKeys / 2 * 576;
__host__ __device__ constexpr int row_offset(int place) {
  return place / 2 * 576 + place % 2 * 320;
}

// Place i of a page in shared memory holds the row of the lanes 4 (i % 8) and slot i / 8.
template <class Pattern>
__device__ __forceinline__ int place_row(int place) {
  static_assert(Pattern::kSlots == 2);
  return Pattern::first_row(4 * (place % 8)) + Pattern::kRowStep * (place / 8);
}

template <class Pattern>
__device__ __forceinline__ void read_page(uint4 (&page)[kLoads], const char* stage,
                                          uint32_t rows) {
#pragma unroll
  for (int j = 0; j < kLoads; ++j) {
    page[j] = make_uint4(0, 0, 0, 0);
    if (rows >> slot_row<Pattern>(j / 4) & 1) {
      page[j] = *reinterpret_cast<const uint4*>(stage + row_offset(j / 4 * 8 + lane_id() / 4) +
                                                (lane_id() % 4 + j % 4 * 4) * kVectorBytes);
    }
  }
}

// Copies by cp.async: completion in the order of the groups.
template <int kStages>
class AsyncCopies {
 public:
  __device__ __forceinline__ explicit AsyncCopies(uint64_t*) {}

  template <class Pattern>
  __device__ __forceinline__ void copy(int, char* stage, const char* base, int token_stride,
                                       uint32_t rows) {
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      const int place = 2 * j + lane_id() / 16;
      const int chunk = lane_id() % 16 * kVectorBytes;
      const int row = place_row<Pattern>(place);
      if (rows >> row & 1) {
        copy_async(stage + row_offset(place) + chunk, base + row * token_stride + chunk);
      }
    }
    copy_async_commit();
  }
  // Waits for the copies into stage i of K and V that were asked for kStages pages ago.
  __device__ __forceinline__ void wait(int) {
    copy_async_wait<2 * (kStages - 1)>();
    __syncwarp();
  }
};

// Copies by the copy engine: one bulk copy a row, one barrier a stage.
template <int kStages>
class BulkCopies {
 public:
  __device__ __forceinline__ explicit BulkCopies(uint64_t* barriers) : barriers_(barriers) {
    if (lane_id() < 2 * kStages) ptx::mbarrier_init(barriers_ + lane_id(), 1);
    ptx::fence_mbarrier_init();
    __syncwarp();
  }

  template <class Pattern>
  __device__ __forceinline__ void copy(int barrier, char* stage, const char* base,
                                       int token_stride, uint32_t rows) {
    uint64_t* full = barriers_ + barrier;
    if (lane_id() == 0) ptx::mbarrier_arrive_expect(full, __popc(rows) * kRowBytes);
    __syncwarp();
    const int row = place_row<Pattern>(lane_id() % kPageKeys);
    if (lane_id() < kPageKeys && (rows >> row & 1)) {
      copy_bulk(stage + row_offset(lane_id()), base + row * token_stride, kRowBytes, full);
    }
  }
  __device__ __forceinline__ void wait(int stage) {
    ptx::mbarrier_wait(barriers_ + 2 * stage, phases_ >> stage & 1);
    ptx::mbarrier_wait(barriers_ + 2 * stage + 1, phases_ >> stage & 1);
    phases_ ^= 1u << stage;
  }

 private:
  uint64_t* barriers_;  // of the warp: K and V of stage 0, K and V of stage 1, ...
  uint32_t phases_ = 0;
};

template <class Math, class Copies, int kStages>
__device__ __forceinline__ void attend_ring(Math& math, Copies& copies, const PageRun& run,
                                            char* ring) {
  using Pattern = typename Math::KeyRows;
  const auto k_stage = [&](int i) { return ring + i * kPageBytes; };
  const auto v_stage = [&](int i) { return ring + (kStages + i) * kPageBytes; };
  const auto copy_keys = [&](int i, int page) {
    copies.template copy<Pattern>(2 * i, k_stage(i), run.k + run.block(page), run.token_stride,
                                  page < run.pages ? run.rows(page) : 0);
  };
  const auto copy_values = [&](int i, int page, uint32_t rows) {
    copies.template copy<Pattern>(2 * i + 1, v_stage(i), run.v + run.block(page),
                                  run.token_stride, rows);
  };

  uint4 vectors[kLoads];
  load_page<Pattern, Fetch::kWholeRow>(vectors, run.k + run.block_before * run.block_stride,
                                       run.token_stride,
                                       run.first_key > 0 && run.pages > 0 ? 0xc000 : 0);
#pragma unroll
  for (int i = 0; i < kStages; ++i) {
    copy_values(i, 0, 0);
    copy_keys(i, i);
  }
  math.score(0, vectors, kAllRows);

  uint32_t wanted[kStages] = {};
  for (int first = 0; first < run.pages + kStages; first += kStages) {
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
      const int page = first + i;
      copies.wait(i);
      if (wanted[i] != 0) {
        read_page<Pattern>(vectors, v_stage(i), wanted[i]);
        math.accumulate(i, vectors);
      }
      wanted[i] = 0;
      if (page < run.pages) {
        read_page<Pattern>(vectors, k_stage(i), run.rows(page));
        wanted[i] = math.score(i, vectors, run.rows(page));
      }
      __syncwarp();
      copy_values(i, page, wanted[i]);
      copy_keys(i, page + kStages);
    }
  }
  // The last turns asked for nothing, but their groups or phases have to end.
#pragma unroll
  for (int i = 0; i < kStages; ++i) copies.wait(i);
}

template <class Math, template <int> class Copies, int kStages, int kHeads, int kSplits>
constexpr int ring_shared_bytes() {
  return kHeads * kSplits *
         (kStages * 2 * (kPageBytes + static_cast<int>(sizeof(uint64_t))) +
          2 * Math::kValues * static_cast<int>(sizeof(float)));
}

template <class Math, template <int> class Copies, int kStages, int kHeads, int kSplits>
__global__ void __launch_bounds__(32 * kHeads * kSplits, 1)
    ring_kernel(const __grid_constant__ Params p) {
  constexpr int kWarps = kHeads * kSplits;
  extern __shared__ __align__(128) char shared[];
  const int warp = threadIdx.x / 32;
  char* ring = shared + warp * kStages * 2 * kPageBytes;
  float* sums = reinterpret_cast<float*>(shared + kWarps * kStages * 2 * kPageBytes);
  uint64_t* barriers = reinterpret_cast<uint64_t*>(sums + 2 * kWarps * Math::kValues);
  Copies<kStages> copies(barriers + warp * kStages * 2);
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
    attend_ring<Math, Copies<kStages>, kStages>(math, copies, run, ring);
    float* block_sums = sums + parity * kWarps * Math::kValues;
    math.store(block_sums + warp * Math::kValues);
    add_partials<Math, kHeads, kSplits>(p, item, index, first_head, block_sums);
  }
}

}  // namespace asynct::bounds
