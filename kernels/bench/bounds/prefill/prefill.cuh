// A bare skeleton of the causal prefill: what the structure can reach before (and with) the gate.
#pragma once

#include "consumer.cuh"
#include "producer.cuh"

namespace asynct::bench {

// `Variant` has a static constexpr Config kConfig: nvcc takes no such value as a kernel's argument.
template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    prefill(const __grid_constant__ Params params) {
  constexpr Config kConfig = Variant::kConfig;
  static_assert(kConfig.registers_fit());
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared<kConfig>& shared = *reinterpret_cast<Shared<kConfig>*>(memory);
  if (threadIdx.x == 0) {
    constexpr int kConsumerWarps = kConfig.consumers * 4;
    shared.query_ring.init(1, kConsumerWarps);
    shared.key_ring.init(1, kConsumerWarps);
    shared.value_ring.init(1, kConsumerWarps);
    shared.work_ring.init(1, 2 + kConsumerWarps);  // the feeders of V and Q read it too
    ptx::fence_mbarrier_init();
    ptx::tma_prefetch_map(&params.query);
    ptx::tma_prefetch_map(&params.key);
    ptx::tma_prefetch_map(&params.value);
  }
  __syncthreads();

  // Broadcast from one lane, so that the compiler knows the role to be uniform in a warp.
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / kWarpgroup, 0);
  if (warpgroup == 0) {
    ptx::shrink_registers<kConfig.producer_registers()>();
    produce<kConfig>(params, shared, threadIdx.x / 32);
  } else {
    ptx::grow_registers<kConfig.consumer_registers()>();
    Consumer<kConfig>{params, shared, warpgroup - 1}.run();
  }
}

}  // namespace asynct::bench
