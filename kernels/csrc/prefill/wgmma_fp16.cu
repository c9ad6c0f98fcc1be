#include "wgmma_kernel.cuh"

namespace asynct::prefill_wgmma {

template void LaunchAttention<__half>(const Params&, int, bool, int, cudaStream_t);

}  // namespace asynct::prefill_wgmma
