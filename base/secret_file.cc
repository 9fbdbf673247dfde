#include "base/secret_file.h"

#include <sys/stat.h>

#include "base/log.h"

namespace baton {

bool warn_if_readable_by_others(const std::string& setting, const std::string& path) {
  struct stat file = {};
  if (::stat(path.c_str(), &file) != 0 || (file.st_mode & (S_IRGRP | S_IROTH)) == 0) return false;
  log_warn("secret_readable_by_others",
           {{"setting", setting}, {"file", path}, {"want", "mode 0600"}});
  return true;
}

}  // namespace baton
