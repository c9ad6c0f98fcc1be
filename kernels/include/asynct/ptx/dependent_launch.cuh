// Thin wrappers over programmatic dependent launch: a kernel that starts before the one ahead of it
// in the stream has ended.
#pragma once

namespace asynct::ptx {

// Lets the next kernel of the stream start, once all blocks are here or have ended.
__device__ __forceinline__ void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits until the kernel ahead has ended; what it wrote is then visible.
__device__ __forceinline__ void wait_for_kernel_ahead() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace asynct::ptx
