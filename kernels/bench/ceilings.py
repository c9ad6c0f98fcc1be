"""What an H200 reaches at best, measured outside these benches."""

COPY_TB_PER_S = 4.3  # device-to-device copy, bytes read and written
CUBLAS_TFLOPS = 686  # bf16, 8192^3, sustained
