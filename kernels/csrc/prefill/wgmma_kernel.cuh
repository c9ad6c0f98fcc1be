// The kernel and its launch, for the instances of one element type.
#pragma once

#include "asynct/launch_rows.cuh"
#include "wgmma_consumer.cuh"
#include "wgmma_launch.h"
#include "wgmma_producer.cuh"

namespace asynct::prefill_wgmma {

template <class T, int kDim, Path kPath>
__global__ void __launch_bounds__(kThreads, 1) Kernel(const __grid_constant__ Params params) {
  using Traits = prefill_wgmma::Traits<T, kDim, kPath>;
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared<Traits>& shared = *reinterpret_cast<Shared<Traits>*>(memory);
  if (threadIdx.x == 0) {
    shared.Init();
    ptx::fence_mbarrier_init();
    ptx::tma_prefetch_map(&params.query);
    ptx::tma_prefetch_map(&params.key.map);
    ptx::tma_prefetch_map(&params.value.map);
  }
  __syncthreads();

  // Broadcast from one lane, so that the compiler knows the role to be uniform in a warp.
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / kWarpgroup, 0);
  if (warpgroup == 0) {
    ptx::shrink_registers<Traits::kProducerRegisters>();
    Produce(params, shared, threadIdx.x / 32);
  } else {
    ptx::grow_registers<Traits::kConsumerRegisters>();
    Consumer<Traits>(params, shared, warpgroup - 1).Run();
  }
}

template <class T>
void LaunchAttention(const Params& params, int head_dim, Path path, int blocks,
                     cudaStream_t stream) {
  WithInstance(head_dim, path, [&]<int kDim, Path kPath>(Instance<kDim, kPath>) {
    constexpr const char* kName = "hp1_prefill_wgmma";
    const auto kernel = Kernel<T, kDim, kPath>;
    constexpr size_t kSharedBytes = sizeof(Shared<Traits<T, kDim, kPath>>);
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
