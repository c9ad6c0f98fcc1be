// Launch parameters, shared memory and the rings through which the roles talk.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

#include "asynct/ptx/mbarrier.cuh"
#include "config.h"
#include "work.h"

namespace asynct::bench {

struct Params {
  CUtensorMap query;         // [batch * length, heads * 128]
  CUtensorMap key;           // see make_key_map
  CUtensorMap value;
  Shape shape;
  __nv_bfloat16* out;        // [batch * length, heads, 128]
  const int* block_table;    // [batch, table_width], paged only
  int table_width;
  const float* sigma;        // [heads]
  const float* alpha;
  const float* gamma;
  float scale;
  int* counters;             // [2] zeros: works taken, blocks done; zeros again afterwards
};

// The n-th use of a ring: its slot, and the parity of the slot's phase.
template <int kSlots>
struct RingPosition {
  static_assert((kSlots & (kSlots - 1)) == 0);
  uint32_t count = 0;

  __device__ __forceinline__ int slot() const { return count % kSlots; }
  __device__ __forceinline__ uint32_t parity() const { return count / kSlots % 2; }
};

template <int kSlots>
struct Ring {
  uint64_t full[kSlots];
  uint64_t empty[kSlots];

  __device__ void init(int producers, int readers) {
    for (int i = 0; i < kSlots; ++i) {
      ptx::mbarrier_init(&full[i], producers);
      ptx::mbarrier_init(&empty[i], readers);
    }
  }
  __device__ __forceinline__ void wait_full(RingPosition<kSlots> at) {
    ptx::mbarrier_wait(&full[at.slot()], at.parity());
  }
  __device__ __forceinline__ void wait_empty(RingPosition<kSlots> at) {
    ptx::mbarrier_wait(&empty[at.slot()], at.parity() ^ 1);
  }
  // One arrival per warp, once all its lanes are done reading.
  __device__ __forceinline__ void release(RingPosition<kSlots> at) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&empty[at.slot()]);
  }
};

template <Config kConfig>
struct Shared {
  // Lines of 64 elements, 128-byte swizzled by TMA; [half of the head][row or key].
  alignas(1024) __nv_bfloat16 query[kConfig.consumers][kHalves][kWarpgroupRows * kLine];
  alignas(1024) __nv_bfloat16 key[kConfig.stages][kHalves][kConfig.tile_keys * kLine];
  alignas(1024) __nv_bfloat16 value[kConfig.stages][kHalves][kConfig.tile_keys * kLine];
  alignas(1024) __nv_bfloat16 out[kConfig.consumers * 4][16 * kHeadDim];  // per warp
  Ring<1> query_ring;
  Ring<kConfig.stages> key_ring;
  Ring<kConfig.stages> value_ring;
  Ring<kWorkSlots> work_ring;
  int work[kWorkSlots];

  // The n-th work of this block, for every warp that needs to know it; -1 past the last.
  __device__ __forceinline__ int take_work(uint32_t n) {
    const RingPosition<kWorkSlots> at{n};
    work_ring.wait_full(at);
    const int index = work[at.slot()];
    work_ring.release(at);
    return index;
  }
};

}  // namespace asynct::bench
