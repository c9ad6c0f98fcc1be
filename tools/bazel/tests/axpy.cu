#include "tools/bazel/tests/axpy.h"

#include "tools/bazel/tests/scale.h"

namespace {

__global__ void AxpyKernel(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += kScale * x[i];
}

}  // namespace

cudaError_t Axpy(const float* x, float* y, int n, cudaStream_t stream) {
  AxpyKernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
  return cudaGetLastError();
}
