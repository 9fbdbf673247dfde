// What a file and the page cache have to do with each other, and how fast the disk under it is.
#pragma once

#include <cstdint>
#include <string>

namespace baton {

// Bytes a second of direct reads (past the page cache) of the file's first `bytes`, in order, by
// `threads` threads that each wait for one read of `read_bytes` at a time. 0 where the file system
// has no direct reads. Throws ConfigError.
double direct_read_rate(const std::string& path, int64_t bytes, int32_t threads,
                        int64_t read_bytes);

void drop_from_page_cache(const std::string& path);
double cached_fraction(const std::string& path);  // of the file's pages

}  // namespace baton
