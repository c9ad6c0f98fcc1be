// Thin wrappers over programmatic dependent launch: a kernel that starts before the one ahead of it
// in the stream has ended. Code for cards before compute capability 9.0 has none of it: there a
// kernel must not be launched so.
#pragma once

namespace asynct::ptx {

// Lets the next kernel of the stream start, once all blocks are here or have ended.
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernel ahead has ended; what it wrote is then visible.
__device__ __forceinline__ void wait_for_kernel_ahead() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace asynct::ptx
