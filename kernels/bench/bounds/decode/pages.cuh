// How a warp reads one page of one head: 16 rows of 256 bytes, eight loads of 16 bytes a lane. A
// pattern gives each lane kSlots rows, kRowStep apart, and of each row kLoads / kSlots chunks of 16
// bytes, kChunkStep apart. Load j belongs to slot j / (kLoads / kSlots).
#pragma once

#include <cstdint>

#include "params.h"
#include "ptx.cuh"

namespace asynct::bounds {

constexpr int kLoads = kPageKeys * kRowBytes / (32 * kVectorBytes);
constexpr uint32_t kAllRows = 0xffff;
constexpr uint32_t kWarp = 0xffffffff;

__device__ __forceinline__ int lane_id() { return threadIdx.x % 32; }

// kLanes neighbouring lanes share a row: 64, 128 or 256 bytes of it a load.
template <int kLanes>
struct Rows {
  static constexpr int kSlots = kLanes / 2;
  static constexpr int kRowStep = 32 / kLanes;
  static constexpr int kChunkStep = kLanes;
  static constexpr int kSameChunkLanes = 31 & ~(kLanes - 1);  // lane bits that change only the row
  static __host__ __device__ constexpr int first_row(int lane) { return lane / kLanes; }
  static __host__ __device__ constexpr int first_chunk(int lane) { return lane % kLanes; }
};

// The same, but a lane's rows are neighbours.
template <int kLanes>
struct RunRows : Rows<kLanes> {
  static constexpr int kRowStep = 1;
  static __host__ __device__ constexpr int first_row(int lane) {
    return lane / kLanes * (kLanes / 2);
  }
};

// The operand of m16n8k16 that holds 16 rows as they are, 64 bytes of a row a load, with rows 4t
// to 4t + 3 in the columns that thread t of a group of four gets of the product.
struct QuadRows : Rows<4> {
  static constexpr int kRowStep = 2;
  static __host__ __device__ constexpr int first_row(int lane) {
    return 4 * (lane / 8) + lane / 4 % 2;
  }
};

// The same operand with rows 2g and 2g + 1 in rows g and g + 8 of the product.
struct EvenOddRows : Rows<4> {
  static constexpr int kRowStep = 1;
  static __host__ __device__ constexpr int first_row(int lane) { return 2 * (lane / 4); }
};

// The transposed operand: lane 4g + t takes rows 4t to 4t + 3, 32 bytes of a row for every two
// neighbouring g.
struct PairRows {
  static constexpr int kSlots = 4;
  static constexpr int kRowStep = 1;
  static constexpr int kChunkStep = 8;
  static constexpr int kSameChunkLanes = 3;
  static __host__ __device__ constexpr int first_row(int lane) { return 4 * (lane % 4); }
  static __host__ __device__ constexpr int first_chunk(int lane) { return lane / 4; }
};

template <class Pattern>
__device__ __forceinline__ int slot_row(int slot) {
  return Pattern::first_row(lane_id()) + Pattern::kRowStep * slot;
}

// Loads the rows of `rows` (a bit each) of the page at `page`; the others become zeros.
template <class Pattern, Fetch kFetch>
__device__ __forceinline__ void load_page(uint4 (&vectors)[kLoads], const char* page,
                                          int token_stride, uint32_t rows) {
  constexpr int kLoadsPerRow = kLoads / Pattern::kSlots;
  const char* row = page + (slot_row<Pattern>(0) * token_stride +
                            Pattern::first_chunk(lane_id()) * kVectorBytes);
#pragma unroll
  for (int slot = 0; slot < Pattern::kSlots; ++slot) {
    const bool there = rows >> slot_row<Pattern>(slot) & 1;
#pragma unroll
    for (int i = 0; i < kLoadsPerRow; ++i) {
      uint4& vector = vectors[slot * kLoadsPerRow + i];
      vector = make_uint4(0, 0, 0, 0);
      if (there) vector = load_vector<kFetch>(row + i * Pattern::kChunkStep * kVectorBytes);
    }
    row += Pattern::kRowStep * token_stride;
  }
}

// The pages of a segment that one warp works on, and where they lie.
struct PageRun {
  const char* k;  // of this head: block 0, row 0
  const char* v;
  int64_t block_stride;
  int token_stride;
  int first_key;
  int end_key;
  int pages;        // at most 32
  int lane_block;   // block of page `lane`
  int block_before; // of the page before the first, where first_key > 0

  __device__ __forceinline__ int64_t block(int page) const {
    return __shfl_sync(kWarp, lane_block, page) * block_stride;
  }
  // Bits of the rows of a page that lie before end_key.
  __device__ __forceinline__ uint32_t rows(int page) const {
    const int left = end_key - (first_key + page * kPageKeys);
    return left >= kPageKeys ? kAllRows : (1u << max(left, 0)) - 1;
  }
};

// Split `split` of `splits` of a segment: whole pages, the same number for each but the last ones.
__device__ __forceinline__ PageRun page_run(const Params& p, const WorkItem& item, int head,
                                            int split, int splits) {
  const int pages = (item.end_key - item.first_key + kPageKeys - 1) / kPageKeys;
  const int share = (pages + splits - 1) / splits;
  const int first = min(split * share, pages);
  const int first_page = item.first_key / kPageKeys + first;
  PageRun run;
  run.k = static_cast<const char*>(p.k_cache) + head * kRowBytes;
  run.v = static_cast<const char*>(p.v_cache) + head * kRowBytes;
  run.block_stride = p.block_stride;
  run.token_stride = p.kv_heads * kRowBytes;
  run.first_key = first_page * kPageKeys;
  run.pages = min(share, pages - first);
  run.end_key = min(item.end_key, run.first_key + run.pages * kPageKeys);
  const int32_t* table = p.block_table + item.request * p.table_width + first_page;
  run.lane_block = lane_id() < run.pages ? table[lane_id()] : 0;
  run.block_before = run.pages > 0 && first_page > 0 ? table[-1] : 0;
  return run;
}

}  // namespace asynct::bounds
