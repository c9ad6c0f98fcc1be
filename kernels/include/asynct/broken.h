// Whether this source file's kernels are to compute something else. A test build breaks one file
// (bazel --define=broken=decode_paged), to see that //evals:smoke turns red.
#pragma once

namespace asynct {

#ifdef ASYNCT_BROKEN
inline constexpr bool kBroken = true;
#else
inline constexpr bool kBroken = false;
#endif

}  // namespace asynct
