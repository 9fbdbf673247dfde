#include <cstdlib>

#include "tests/e2e/bad_access.h"

namespace baton {

void access_badly(int) {
  std::abort();  // a build without CUDA has no GPU engine
}

}  // namespace baton
