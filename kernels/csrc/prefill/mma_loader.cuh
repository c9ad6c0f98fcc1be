// Copies a KV head's pages into the tiles of shared memory, by cp.async.
#pragma once

#include "asynct/attention.h"
#include "asynct/fp8.cuh"
#include "asynct/mma_tile.h"
#include "asynct/ptx/cp_async.cuh"

namespace asynct::prefill_mma {

// Where in the cache the rows of one tile are; null for a row of zeros.
struct TileSlots {
  const void* key[kTileKeys];
  const void* value[kTileKeys];
};

// One request's keys 0 .. end - 1, and a KV head. The cache holds elements of type Stored, the
// tiles of type T; kDim is the size of the head. Keys from `end` on become rows of zeros: nothing
// of them is read.
template <class T, class Stored, int kDim>
class Loader {
 public:
  __device__ __forceinline__ Loader(const AttentionParams& params, int request, int kv_head,
                                    int end)
      : cache_(params.cache),
        blocks_(params.block_table + request * params.table_stride),
        kv_head_(kv_head),
        end_(end) {}

  // Half of the threads look up where a tile's keys are, half its values, a row each: Ask()
  // requests the block number early, Publish() of the same tile writes the places.
  __device__ __forceinline__ void Ask(int first_key) {
    const int key = first_key + KeyOfRow(threadIdx.x % kTileKeys);
    if (key < end_) block_ = blocks_[key / cache_.block_size];
  }

  __device__ __forceinline__ void Publish(int first_key, TileSlots& slots) const {
    const int key = first_key + KeyOfRow(threadIdx.x % kTileKeys);
    const bool is_key = threadIdx.x < kTileKeys;
    const CacheView& view = is_key ? cache_.key : cache_.value;
    const void* row = nullptr;
    if (key < end_) {
      row = static_cast<const Stored*>(view.data) + block_ * view.block_stride +
            key % cache_.block_size * view.slot_stride + kv_head_ * view.head_stride;
    }
    (is_key ? slots.key : slots.value)[threadIdx.x % kTileKeys] = row;
  }

  // Starts the copies into `tile`, from `rows` of its slots.
  static __device__ __forceinline__ void CopyRows(T* tile, const void* const (&rows)[kTileKeys]) {
    const int first = ChunkAt(Row(), Copy(), kChunks);
#pragma unroll
    for (int row = 0; row < kTileKeys; row += kRows) {
      const uint4* from = static_cast<const uint4*>(rows[Row() + row]);
      void* to = kConverts ? static_cast<void*>(Waiting(tile) + row * kCopies)
                           : tile + ChunkFrom(first, row, 0, kChunks) * 8;
      ptx::copy_async(to, from + Copy(), from != nullptr);
    }
    ptx::copy_async_commit();
  }

  // Waits for the copies into `tile`, its thread's and all others'.
  static __device__ __forceinline__ void Arrive(T* tile) {
    ptx::copy_async_wait<0>();
    if constexpr (kConverts) Convert(tile);
    __syncthreads();
  }

 private:
  static constexpr bool kConverts = sizeof(Stored) < sizeof(T);
  static constexpr int kElements = 16 / sizeof(Stored);  // of a copy
  static constexpr int kCopies = kDim / kElements;       // of a row
  static constexpr int kRows = kThreads / kCopies;       // that the threads copy at a time
  static constexpr int kChunks = kDim / 8;               // of a row of the tile

  // The thread's first row of a tile, and which of the row's copies are its.
  static __device__ __forceinline__ int Row() { return threadIdx.x / kCopies; }
  static __device__ __forceinline__ int Copy() { return threadIdx.x % kCopies; }

  // Rows to convert wait in the second half of the tile.
  static __device__ __forceinline__ uint4* Waiting(T* tile) {
    return reinterpret_cast<uint4*>(tile + kTileKeys * kDim / 2) + threadIdx.x;
  }

  // Takes the thread's own waiting copies to their places; all must be out before one is written.
  static __device__ __forceinline__ void Convert(T* tile) {
    uint4 waiting[kTileKeys / kRows];
#pragma unroll
    for (int i = 0; i < kTileKeys / kRows; ++i) waiting[i] = Waiting(tile)[i * kThreads];
    __syncthreads();
    const int first = ChunkAt(Row(), 2 * Copy(), kChunks);
#pragma unroll
    for (int i = 0; i < kTileKeys / kRows; ++i) {
      const uint32_t bytes[4] = {waiting[i].x, waiting[i].y, waiting[i].z, waiting[i].w};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t low[2], high[2];
        FromFp8<T>(bytes[2 * half], low);
        FromFp8<T>(bytes[2 * half + 1], high);
        T* chunk = tile + ChunkFrom(first, i * kRows, half, kChunks) * 8;
        *reinterpret_cast<uint4*>(chunk) = make_uint4(low[0], low[1], high[0], high[1]);
      }
    }
  }

  const PagedCache& cache_;
  const int32_t* blocks_;
  const int kv_head_;
  const int end_;
  int32_t block_ = 0;
};

}  // namespace asynct::prefill_mma
