// A kernel built by cuda_library links into a C++ program, which runs with and without a GPU.
#include "tools/bazel/tests/axpy.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tools/bazel/tests/scale.h"

namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    if (const char* required = std::getenv("ASYNCT_REQUIRE_GPU"); required && *required == '1') {
      std::printf("ASYNCT_REQUIRE_GPU=1, and there is no CUDA device\n");
      return 1;
    }
    std::printf("no CUDA device: linked and loaded, nothing launched\n");
    return 0;
  }
  constexpr int n = 1000;
  std::vector<float> x(n, 3.0f), y(n, 1.0f);
  const size_t bytes = n * sizeof(float);
  void* memory;
  Check(cudaMalloc(&memory, 2 * bytes), "cudaMalloc");
  float* device_x = static_cast<float*>(memory);
  float* device_y = device_x + n;
  Check(cudaMemcpy(device_x, x.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  Check(cudaMemcpy(device_y, y.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  Check(Axpy(device_x, device_y, n, nullptr), "Axpy");
  Check(cudaMemcpy(y.data(), device_y, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  for (float value : y) {
    if (value != 1.0f + kScale * 3.0f) {
      std::printf("y is %g\n", value);
      return 1;
    }
  }
  return 0;
}
