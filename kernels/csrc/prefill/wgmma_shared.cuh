// The instances of the wgmma prefill, launch parameters, shared memory, and the rings through which
// the roles talk.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "asynct/attention.h"
#include "asynct/prefill_schedule.h"
#include "asynct/ptx/mbarrier.cuh"
#include "wgmma_scores.cuh"

namespace asynct::prefill_wgmma {

inline constexpr int kWarpgroup = 128;        // threads
inline constexpr int kWarpgroupRows = 64;     // of a wgmma
inline constexpr int kConsumers = 2;          // warpgroups
inline constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
inline constexpr int kLine = 64;              // 16-bit elements in a 128-byte swizzled line
inline constexpr int kFeedingWarps = 2;       // of K, and as many of V
inline constexpr int kWorkSlots = 4;

// Registers that setmaxnreg can hand out, a thread of each warpgroup: those of the launch. Asking
// for one more would wait for ever.
inline constexpr int kRegisters = 65536 / kThreads / 8 * 8 * (1 + kConsumers);
inline constexpr int kConsumerRegisters = 224;
inline constexpr int kProducerRegisters = kRegisters - kConsumers * kConsumerRegisters;

// kFastGate: the gate of the usual constants, else any.
template <class T, int kDim, bool kFastGate>
struct Traits {
  using Element = T;
  static constexpr int kHeadDim = kDim;
  static constexpr bool kFast = kFastGate;
  static constexpr int kLines = kDim / kLine;  // of a row
  // As many as registers allow.
  static constexpr int kTileKeys = kDim > 128 ? 32 : kFast ? 128 : 64;
  static constexpr int kRun = kTileKeys / 4;  // keys of a thread, one after the other
  static constexpr int kStages = 2 * 128 * 128 / (kTileKeys * kDim);
  static constexpr int kQuerySlots = kDim <= 128 ? 2 : 1;
  using Gate = std::conditional_t<kFast, FastRowGate<kRun>, GeneralRowGate<kRun>>;
};

template <int kDim, bool kFastGate>
struct Instance {};

// Calls function(Instance<kDim, kFastGate>{}): the list of what is compiled, for each element type.
template <class Function>
void WithInstance(int head_dim, bool fast_gate, Function function) {
  const auto with_dim = [&]<int kDim>(std::integral_constant<int, kDim>) {
    return fast_gate ? function(Instance<kDim, true>{}) : function(Instance<kDim, false>{});
  };
  switch (head_dim) {
    case 64: return with_dim(std::integral_constant<int, 64>{});
    case 128: return with_dim(std::integral_constant<int, 128>{});
    case 256: return with_dim(std::integral_constant<int, 256>{});
  }
  throw std::invalid_argument("hp1_prefill_wgmma: head_dim must be 64, 128 or 256");
}

// K or V.
struct KeyValueSource {
  CUtensorMap map;       // of contiguous rows
  const void* data;      // [blocks, slots, kv_heads, head_dim]
  int64_t block_stride;  // in elements, as the other two
  int64_t slot_stride;
  int64_t head_stride;
  const float* scale;    // of fp8; null for other types
  int scale_stride;
};

struct Params {
  CUtensorMap query;  // [tokens, heads, head_dim]
  KeyValueSource key;
  KeyValueSource value;
  bool mapped;  // there are maps of both
  bool float8;  // they are stored in it; not mapped then
  const int32_t* block_table;  // [requests, table_stride]; null: one block, rows are its slots
  int64_t table_stride;
  int block_size;
  int request_rows;  // without a block table: rows from request to request; 0: as the queries
  void* out;
  int64_t out_token_stride;
  int64_t out_head_stride;
  GateParams gate;
  int group;       // query heads of a KV head
  int work_heads;  // query heads of a work: 2, one a warpgroup, or 1
  int head_works;  // works of a row block
  ScheduleHeader* schedule;
};

// One row block of one or two query heads: what a thread block works on at a time.
struct Work {
  RowBlock block;
  int head;  // the first
  int kv_head;
  int tiles;  // key tiles; 0 says that there is no more work
};

// The n-th use of a ring: its slot, and the parity of the slot's phase.
template <int kSlots>
struct RingPosition {
  static_assert((kSlots & (kSlots - 1)) == 0);
  uint32_t count = 0;

  __device__ __forceinline__ int Slot() const { return count % kSlots; }
  __device__ __forceinline__ uint32_t Parity() const { return count / kSlots % 2; }
};

template <int kSlots>
struct Ring {
  using Position = RingPosition<kSlots>;
  uint64_t full[kSlots];
  uint64_t empty[kSlots];

  __device__ void Init(int filling_threads, int reading_warps) {
    for (int i = 0; i < kSlots; ++i) {
      ptx::mbarrier_init(&full[i], filling_threads);
      ptx::mbarrier_init(&empty[i], reading_warps);
    }
  }
  __device__ __forceinline__ void WaitFull(Position at) {
    ptx::mbarrier_wait(&full[at.Slot()], at.Parity());
  }
  __device__ __forceinline__ void WaitEmpty(Position at) {
    ptx::mbarrier_wait(&empty[at.Slot()], at.Parity() ^ 1);
  }
  // Called by a thread whose ordinary stores fill the slot.
  __device__ __forceinline__ void Publish(Position at) {
    ptx::mbarrier_arrive(&full[at.Slot()]);
  }
  // Called by a warp when all its lanes are done reading.
  __device__ __forceinline__ void Release(Position at) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&empty[at.Slot()]);
  }
};

template <class Traits>
struct Shared {
  using Element = typename Traits::Element;
  using Tile = Element[Traits::kLines][Traits::kTileKeys * kLine];
  // Lines are 128-byte swizzled: 16-byte chunk c of line r stands at chunk c ^ r % 8.
  alignas(1024) Element query[Traits::kQuerySlots][kConsumers][Traits::kLines]
                             [kWarpgroupRows * kLine];
  alignas(1024) Tile key[Traits::kStages];
  alignas(1024) Tile value[Traits::kStages];
  alignas(1024) Element out[kConsumers * 4][16 * kLine];  // per warp
  Ring<Traits::kQuerySlots> query_ring;
  Ring<Traits::kStages> key_ring;
  Ring<Traits::kStages> value_ring;
  Ring<kWorkSlots> work_ring;
  Work work[kWorkSlots];

  __device__ void Init() {
    constexpr int kConsumerWarps = kConsumers * 4;
    query_ring.Init(1, kConsumerWarps);
    key_ring.Init(kFeedingWarps * 32, kConsumerWarps);
    value_ring.Init(kFeedingWarps * 32, kConsumerWarps);
    work_ring.Init(1, 3 + kConsumerWarps);  // the other producers read it too
  }

  // The n-th work of this thread block. A warp waits for it before it looks, and releases it in
  // work_ring when done with it.
  __device__ __forceinline__ Work& WorkAt(uint32_t n) {
    return work[RingPosition<kWorkSlots>{n}.Slot()];
  }
  __device__ __forceinline__ const Work& WaitWork(uint32_t n) {
    work_ring.WaitFull({n});
    return WorkAt(n);
  }
};

}  // namespace asynct::prefill_wgmma
