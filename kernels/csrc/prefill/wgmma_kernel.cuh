// The kernel and its launch, for the instances of one element type.
#pragma once

#include "asynct/launch_rows.cuh"
#include "wgmma_consumer.cuh"
#include "wgmma_launch.h"
#include "wgmma_producer.cuh"

namespace asynct::prefill_wgmma {

template <class T, int kDim, bool kFastGate>
__global__ void __launch_bounds__(kThreads, 1) Kernel(const __grid_constant__ Params params) {
  using Traits = prefill_wgmma::Traits<T, kDim, kFastGate>;
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared<Traits>& shared = *reinterpret_cast<Shared<Traits>*>(memory);
  if (threadIdx.x == 0) {
    shared.Init();
    ptx::fence_mbarrier_init();
    ptx::tma_prefetch_map(&params.query);
  }
  __syncthreads();

  // Broadcast from one lane, so that the compiler knows the role to be uniform in a warp.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const int warpgroup = warp / 4;
  if (warpgroup == 0) {
    ptx::shrink_registers<kProducerRegisters>();
    Produce<Traits>(params, shared, warp);
  } else {
    ptx::grow_registers<kConsumerRegisters>();
    Consumer<Traits>(params, shared, warpgroup - 1).Run();
  }
}

template <class T>
void LaunchAttention(const Params& params, int head_dim, bool fast_gate, int blocks,
                     cudaStream_t stream) {
  WithInstance(head_dim, fast_gate, [&]<int kDim, bool kFastGate>(Instance<kDim, kFastGate>) {
    constexpr const char* kName = "hp1_prefill_wgmma";
    const auto kernel = Kernel<T, kDim, kFastGate>;
    constexpr size_t kSharedBytes = sizeof(Shared<Traits<T, kDim, kFastGate>>);
    Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
          kName);
    cudaLaunchAttribute early;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = kThreads;
    config.dynamicSmemBytes = kSharedBytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    Check(cudaLaunchKernelEx(&config, kernel, params), kName);
  });
}

}  // namespace asynct::prefill_wgmma
