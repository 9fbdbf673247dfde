// What discovery says of a worker's address beside that it is one. Plain data: made by
// worker_list.cc, kept by placement.cc.
#pragma once

#include <string>

namespace baton {

struct AddressHint {
  std::string withheld;  // empty: it may get requests; else why it may not
  std::string zone;      // empty: not known
  bool operator==(const AddressHint&) const = default;
};

}  // namespace baton
