// How a warp reads a page: 16 rows, keys or values of one KV head. Eight lanes share a row, so that
// a load instruction takes whole lines of four rows; a lane has four neighbouring rows of the page.
#pragma once

#include <cuda_runtime_api.h>

#include "asynct/attention.h"
#include "asynct/decode_schedule.h"
#include "asynct/ptx/cp_async.cuh"
#include "asynct/ptx/load.cuh"

namespace asynct::decode {

inline constexpr uint32_t kWarp = 0xffffffff;
inline constexpr int kLaneRows = 4;

__device__ __forceinline__ int lane_id() { return threadIdx.x % 32; }

// The same, read anew each time: what is computed from it does not take registers elsewhere.
__device__ __forceinline__ int lane_id_anew() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// A lane's part of a row: kVectors vectors, eight vectors apart.
template <class Cache, int kHeadDim>
struct RowShape {
  static constexpr int kLaneBytes = kHeadDim * static_cast<int>(sizeof(Cache)) / 8;
  static constexpr int kVectorBytes = kLaneBytes < 16 ? kLaneBytes : 16;
  static constexpr int kVectors = kLaneBytes / kVectorBytes;
  static constexpr int kWords = kVectorBytes / 4;
  static constexpr int kElements = kVectorBytes / static_cast<int>(sizeof(Cache));  // of a vector
};

template <class Row>
using PageWords = uint32_t[kLaneRows][Row::kVectors][Row::kWords];

// Lane 8r + c has the rows 4r to 4r + 3, of each the vectors c, c + 8, ...
struct KeyLanes {
  static __device__ __forceinline__ int first_row(int lane) { return lane / 8 * kLaneRows; }
  static __device__ __forceinline__ int first_vector(int lane) { return lane % 8; }
};

// Lane 4c + r does.
struct ValueLanes {
  static __device__ __forceinline__ int first_row(int lane) { return lane % 4 * kLaneRows; }
  static __device__ __forceinline__ int first_vector(int lane) { return lane / 4; }
};

// Where a page lies: its block, and its place among the block's pages.
struct PagePlace {
  static constexpr int kMaxPages = 64;  // of a block
  static __device__ __forceinline__ int pack(int block, int page) {
    return block * kMaxPages + page;
  }
  static __device__ __forceinline__ uint32_t block(int place) {
    return static_cast<uint32_t>(place) / kMaxPages;
  }
  static __device__ __forceinline__ int page(int place) { return place & (kMaxPages - 1); }
};

// K or V of a cache; strides in bytes.
struct CacheRows {
  const char* data;
  int64_t head_stride;
  uint32_t block_stride;
  int slot_stride;
};

// The factor of what an fp8 cache stores for a head.
__device__ __forceinline__ float stored_scale(const CacheView& view, int kv_head) {
  return view.scale == nullptr ? 1.0f : view.scale[kv_head * view.scale_stride];
}

__device__ __forceinline__ const char* slot_address(const CacheRows& cache, int kv_head, int place,
                                                    int slot) {
  const int in_block = PagePlace::page(place) * kPageKeys + slot;
  return cache.data + kv_head * cache.head_stride +
         PagePlace::block(place) * uint64_t{cache.block_stride} + in_block * cache.slot_stride;
}

// Loads the lane's rows of a head's page that `rows` has a bit for; the others become zeros.
template <class Lanes, class Row>
__device__ __forceinline__ void load_rows(PageWords<Row>& words, const CacheRows& cache,
                                          int kv_head, int place, uint32_t rows) {
  const char* row = slot_address(cache, kv_head, place, Lanes::first_row(lane_id())) +
                    Lanes::first_vector(lane_id()) * Row::kVectorBytes;
  rows >>= Lanes::first_row(lane_id());
#pragma unroll
  for (int i = 0; i < kLaneRows; ++i) {
#pragma unroll
    for (int v = 0; v < Row::kVectors; ++v) {
#pragma unroll
      for (uint32_t& word : words[i][v]) word = 0;
      if (rows >> i & 1) ptx::load_once(words[i][v], row + v * 8 * Row::kVectorBytes);
    }
    row += cache.slot_stride;
  }
}

// The last kRows rows of a page, on their way through shared memory.
template <class Row, int kRows>
struct RowsBefore {
  static constexpr int kRowChunks = 8 * Row::kLaneBytes / 16;
  uint4 chunks[kRows * kRowChunks];

  // Asks for them; zeros where `place` is negative.
  __device__ __forceinline__ void ask(const CacheRows& cache, int kv_head, int place) {
    const int lane = lane_id_anew();
#pragma unroll
    for (int i = 0; i < kRows * kRowChunks; i += 32) {
      const int chunk = i + lane;
      const char* row =
          slot_address(cache, kv_head, place, kPageKeys - kRows + chunk / kRowChunks);
      if (chunk < kRows * kRowChunks) {
        ptx::copy_async(&chunks[chunk], row + chunk % kRowChunks * 16, place >= 0);
      }
    }
  }

  // The lane's rows of the page.
  __device__ __forceinline__ void read(PageWords<Row>& words) const {
    const int lane = lane_id_anew();
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      const int row = KeyLanes::first_row(lane) + i - (kPageKeys - kRows);
      const auto* vectors = reinterpret_cast<const char*>(chunks + max(row, 0) * kRowChunks);
#pragma unroll
      for (int v = 0; v < Row::kVectors; ++v) {
        const auto* from = reinterpret_cast<const uint32_t*>(
            vectors + (KeyLanes::first_vector(lane) + 8 * v) * Row::kVectorBytes);
#pragma unroll
        for (int w = 0; w < Row::kWords; ++w) words[i][v][w] = row < 0 ? 0 : from[w];
      }
    }
  }
};

// The pages of a segment that one warp works on.
struct PageRun {
  int keys = 0;
  int cached = 0;         // all of the keys, or all but the last, which this launch writes
  int lane_place = 0;     // of page `lane`
  int place_before = -1;  // of the page before the first; negative where the request begins

  __device__ __forceinline__ int pages() const { return (keys + kPageKeys - 1) / kPageKeys; }
  __device__ __forceinline__ int place(int page) const {
    return __shfl_sync(kWarp, lane_place, page);
  }
  // A bit for each row of a page that holds one of the keys; one of the keys in the cache.
  __device__ __forceinline__ uint32_t rows(int page) const { return rows_of(keys, page); }
  __device__ __forceinline__ uint32_t cached_rows(int page) const { return rows_of(cached, page); }
  // Whether a key that is not in the cache is the page's; it is in row `cached % kPageKeys`.
  __device__ __forceinline__ bool has_newest(int page) const {
    return cached < keys && cached / kPageKeys == page;
  }

 private:
  static __device__ __forceinline__ uint32_t rows_of(int keys, int page) {
    const int left = keys - page * kPageKeys;
    return left >= kPageKeys ? (1u << kPageKeys) - 1 : (1u << max(left, 0)) - 1;
  }
};

}  // namespace asynct::decode
