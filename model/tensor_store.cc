#include "model/tensor_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/status.h"

namespace baton {

MappedFile::MappedFile(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (!fd_.valid()) throw ConfigError(path + ": cannot open: " + std::strerror(errno));
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    throw ConfigError(path + ": not a regular file");
  }
  size_ = info.st_size;
  if (size_ == 0) return;  // mmap refuses length 0; the readers report what is missing
  void* address = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_PRIVATE, fd_.get(), 0);
  if (address == MAP_FAILED) throw ConfigError(path + ": cannot map: " + std::strerror(errno));
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

void MappedFile::read(const std::string& tensor, int64_t offset, std::span<std::byte> to) const {
  // All of it is asked of the disk at once; a plain read asks for the kernel's read-ahead window,
  // and waits, piece by piece. Advice only: where it is refused, reading is slower.
  ::posix_fadvise(fd_.get(), offset, static_cast<off_t>(to.size()), POSIX_FADV_WILLNEED);
  while (!to.empty()) {
    const ssize_t got = ::pread(fd_.get(), to.data(), to.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const std::string reason =
          got < 0 ? std::strerror(errno) : "the file ends there; it was cut short while in use";
      throw ConfigError(path_ + ": tensor '" + tensor + "': cannot read " +
                        std::to_string(to.size()) + " bytes at byte " + std::to_string(offset) +
                        ": " + reason);
    }
    offset += got;
    to = to.subspan(static_cast<size_t>(got));
  }
}

std::string shape_string(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace baton
