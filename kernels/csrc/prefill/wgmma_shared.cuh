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
inline constexpr int kWorkSlots = 4;          // the gate's, one ended before, two ahead

// Registers that setmaxnreg can hand out, a thread of each warpgroup: those of the launch. Asking
// for one more would wait for ever.
inline constexpr int kRegisters = 65536 / kThreads / 8 * 8 * (1 + kConsumers);

enum class Path {
  kPages,    // fast gate; a thread owns four consecutive keys of each 16, as pages allow
  kRows,     // fast gate; a request's keys are contiguous, a thread owns a quarter of the tile
  kGeneral,  // any gate, pages or contiguous rows, 16-bit or fp8
};

template <class T, int kDim, Path kPath>
struct Traits {
  using Element = T;
  static constexpr int kHeadDim = kDim;
  static constexpr int kLines = kDim / kLine;  // of a row
  static constexpr int kTileKeys = kDim <= 128 ? 64 : 32;
  static constexpr int kStages = 4;
  static constexpr int kQuerySlots = kDim <= 128 ? 2 : 1;
  static constexpr int kRun = kPath == Path::kRows ? kTileKeys / 4 : 4;
  static constexpr int kBoxKeys = 4 * kRun;  // of a copy by the copy engine
  static constexpr int kConsumerRegisters = kDim <= 128 ? 216 : 232;
  static constexpr int kProducerRegisters = kRegisters - kConsumers * kConsumerRegisters;
  using Gate = std::conditional_t<kPath == Path::kGeneral, GeneralRowGate, FastRowGate<kRun>>;
};

template <int kDim, Path kPath>
struct Instance {};

// Calls function(Instance<kDim, kPath>{}): the list of what is compiled, for each element type.
template <class Function>
void WithInstance(int head_dim, Path path, Function function) {
  const auto with_dim = [&]<int kDim>(std::integral_constant<int, kDim>) {
    switch (path) {
      case Path::kPages: return function(Instance<kDim, Path::kPages>{});
      case Path::kRows: return function(Instance<kDim, Path::kRows>{});
      case Path::kGeneral: return function(Instance<kDim, Path::kGeneral>{});
    }
  };
  switch (head_dim) {
    case 64: return with_dim(std::integral_constant<int, 64>{});
    case 128: return with_dim(std::integral_constant<int, 128>{});
    case 256: return with_dim(std::integral_constant<int, 256>{});
  }
  throw std::invalid_argument("hp1_prefill_wgmma: head_dim must be 64, 128 or 256");
}

// K or V: by tensor map for tiles that are wholly the request's, by address for others.
struct KeyValueSource {
  CUtensorMap map;
  const void* data;      // [blocks, slots, kv_heads, head_dim]
  int64_t block_stride;  // in elements, as the other two
  int64_t slot_stride;
  int64_t head_stride;
  int block_units;       // steps of the map's last dimension to the next block
  int head_units;        // and to the next KV head
  const float* scale;    // of fp8; null for other types
  int scale_stride;
};

struct Params {
  CUtensorMap query;  // [tokens, heads, head_dim]
  KeyValueSource key;
  KeyValueSource value;
  bool mapped;  // the copy engine may feed them
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

  __device__ void Init(int reading_warps) {
    for (int i = 0; i < kSlots; ++i) {
      ptx::mbarrier_init(&full[i], 1);
      ptx::mbarrier_init(&empty[i], reading_warps);
    }
  }
  __device__ __forceinline__ void WaitFull(Position at) {
    ptx::mbarrier_wait(&full[at.Slot()], at.Parity());
  }
  __device__ __forceinline__ void WaitEmpty(Position at) {
    ptx::mbarrier_wait(&empty[at.Slot()], at.Parity() ^ 1);
  }
  // Called by one thread whose ordinary stores fill the slot.
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
    query_ring.Init(kConsumerWarps);
    key_ring.Init(kConsumerWarps);
    value_ring.Init(kConsumerWarps);
    work_ring.Init(2 + kConsumerWarps);  // the feeders of V and Q read it too
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
