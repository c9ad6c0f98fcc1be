#pragma once

#include <cuda_runtime_api.h>

// y[i] += kScale * x[i] for i < n; x and y are device pointers.
cudaError_t Axpy(const float* x, float* y, int n, cudaStream_t stream);
