"""The ladder: one workload, served by Hugging Face, by PyTorch's paths, by Triton and by CUDA."""
