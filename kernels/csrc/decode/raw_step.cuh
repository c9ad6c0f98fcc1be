// A raw step's part of a segment (asynct/attention.h): DyHT and RoPE of the queries, and of the
// request's newest key. The one warp that has this key among its own writes it and its value to the
// cache, and itself takes them from shared memory: nobody reads what the launch writes.
#pragma once

#include "asynct/cache_write.cuh"
#include "asynct/norm_rope.cuh"
#include "asynct/ptx/cp_async.cuh"
#include "task.cuh"

namespace asynct::decode {

// What a warp keeps of it in shared memory.
template <class T, class Cache, int kDim>
class RawRows {
 public:
  using Chunk = Vector<T, 8>;
  static constexpr int kRowChunks = kDim / 8;

  static __device__ __forceinline__ bool is_float(const Parameter& cos_sin) {
    return cos_sin.dtype == DataType::kFloat32;
  }

  // Asks for the angles of a segment's position and, where the warp has the newest key, for that
  // and its value.
  __device__ __forceinline__ void ask(const DecodeParams& p, const DecodeSegment& segment,
                                      bool has_newest, int parity) {
    const int lane = lane_id_anew();
    const Parameter& cos_sin = p.raw.norm_rope.cos_sin;
    const int row_bytes = kDim * (is_float(cos_sin) ? 4 : static_cast<int>(sizeof(T)));
    const char* angles = static_cast<const char*>(cos_sin.data) +
                         int64_t{max(segment.length - 1, 0)} * row_bytes;
    for (int i = lane; i < row_bytes / 16; i += 32) {
      ptx::copy_async(&angles_[i], angles + i * 16);
    }
    if (!has_newest) return;
#pragma unroll
    for (int i = lane; i < 2 * kRowChunks; i += 32) {
      const bool is_value = i >= kRowChunks;
      const HeadsView& view = is_value ? p.raw.fresh.value : p.raw.fresh.key;
      const T* row = static_cast<const T*>(view.data) + segment.token * view.token_stride +
                     head_group(p).kv_head * view.head_stride;
      ptx::copy_async(&rows_[parity][is_value][i % kRowChunks], row + i % kRowChunks * 8);
    }
  }

  // Of a lane's word of a query or key, its first channel `channel`, and the word kDim / 2 channels
  // on: asks for the parameters, and does DyHT and RoPE.
  class Turn {
   public:
    __device__ __forceinline__ Turn(const DyHTParams& dyht, int channel)
        : channel_(channel), even_(dyht, kDim, channel), odd_(dyht, kDim, channel + 1) {}

    __device__ __forceinline__ void apply(const RawRows& rows, bool float_angles, uint32_t& low,
                                          uint32_t& high) {
      float x[2][1], y[2][1], cos[2][1], sin[2][1];
      unpack(low, x);
      unpack(high, y);
      rows.read_angles(float_angles, channel_, cos);
      rows.read_angles(float_angles, channel_ + kDim / 2, sin);
      even_.Apply(x[0], y[0], cos[0], sin[0]);
      odd_.Apply(x[1], y[1], cos[1], sin[1]);
      low = pack(x);
      high = pack(y);
    }

   private:
    int channel_;
    NormRope<float, 1> even_, odd_;
  };

  // Norms and turns the key that was asked for, writes it and its value to the cache, and keeps
  // them as the cache stores them.
  __device__ __forceinline__ void store_newest(const DecodeParams& p, int token, int parity) {
    const int lane = lane_id_anew();
    const bool is_value = lane >= 16;
    const int chunk = lane % 16;
    turn_key(p, parity);
    uint4* row = rows_[parity][is_value];
    const bool active = chunk < kRowChunks / 2;
    const CacheView& view = is_value ? p.attention.cache.value : p.attention.cache.key;
    const int kv_head = head_group(p).kv_head;
    const Chunk low = {row[chunk % kRowChunks]};
    const Chunk high = {row[(chunk + kRowChunks / 2) % kRowChunks]};
    if (active && blockIdx.x == 0) {  // one of the blocks that share the KV head
      const CacheSlot<Cache> slot(p.raw.fresh.slot_mapping[token], p.attention.cache.block_size);
      slot.Store(view, kv_head, chunk * 8, low);
      slot.Store(view, kv_head, chunk * 8 + kDim / 2, high);
    }
    __syncwarp();
    if (active) {
      const float scale = stored_scale(view, kv_head);
      const auto stored = AsStored<Cache>(low, scale);
      auto* to = reinterpret_cast<std::remove_const_t<decltype(stored)>*>(row);
      to[chunk] = stored;
      to[chunk + kRowChunks / 2] = AsStored<Cache>(high, scale);
    }
    __syncwarp();
  }

  // Puts the newest key, or its value, in its row of a page.
  template <class Lanes, class Row>
  __device__ __forceinline__ void insert(PageWords<Row>& words, int row, int parity) const {
    const int lane = lane_id_anew();
    constexpr bool kIsValue = std::is_same_v<Lanes, ValueLanes>;
    const auto* vectors = reinterpret_cast<const char*>(rows_[parity][kIsValue]);
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      if (Lanes::first_row(lane) + i != row) continue;
#pragma unroll
      for (int v = 0; v < Row::kVectors; ++v) {
        const auto* from = reinterpret_cast<const uint32_t*>(
            vectors + (Lanes::first_vector(lane) + 8 * v) * Row::kVectorBytes);
#pragma unroll
        for (int w = 0; w < Row::kWords; ++w) words[i][v][w] = from[w];
      }
    }
  }

 private:
  __device__ __forceinline__ void turn_key(const DecodeParams& p, int parity) {
    auto* words = reinterpret_cast<uint32_t*>(rows_[parity][0]);
    for (int i = lane_id_anew(); i < kDim / 4; i += 32) {
      Turn turn(p.raw.norm_rope.k, 2 * i);
      turn.apply(*this, is_float(p.raw.norm_rope.cos_sin), words[i], words[i + kDim / 4]);
    }
    __syncwarp();
  }

  // Two cosines or sines.
  __device__ __forceinline__ void read_angles(bool float_angles, int first,
                                              float (&angles)[2][1]) const {
    if (float_angles) {
      const float2 pair = reinterpret_cast<const float2*>(angles_)[first / 2];
      angles[0][0] = pair.x;
      angles[1][0] = pair.y;
    } else {
      unpack(reinterpret_cast<const uint32_t*>(angles_)[first / 2], angles);
    }
  }

  static __device__ __forceinline__ void unpack(uint32_t word, float (&values)[2][1]) {
    typename PairOf<T>::Type bits;
    __builtin_memcpy(&bits, &word, sizeof(bits));
    const float2 pair = ToFloats(bits);
    values[0][0] = pair.x;
    values[1][0] = pair.y;
  }
  static __device__ __forceinline__ uint32_t pack(const float (&values)[2][1]) {
    const auto bits = PairOf<T>::Round(values[0][0], values[1][0]);
    uint32_t word;
    __builtin_memcpy(&word, &bits, sizeof(word));
    return word;
  }

  uint4 angles_[kDim / 4];        // room for float32
  uint4 rows_[2][2][kRowChunks];  // of this segment and of the next: the newest key, and its value
};

}  // namespace asynct::decode
