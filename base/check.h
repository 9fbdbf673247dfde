// CHECK is for our own bugs: it prints the condition, the values streamed into it and the place,
// then aborts. Bad input and lost peers are never a CHECK: they are a Status.
#pragma once

#include <sstream>

namespace baton {

// Collects the message of a failed CHECK; its destructor prints it and aborts.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

}  // namespace baton

#define CHECK(condition)      \
  if (condition) [[likely]] { \
  } else                      \
    ::baton::CheckFailure(__FILE__, __LINE__, #condition).stream()
#define BATON_CHECK_OP(a, op, b) \
  CHECK((a)op(b)) << #a " is " << (a) << ", " #b " is " << (b) << ": "
#define CHECK_EQ(a, b) BATON_CHECK_OP(a, ==, b)
#define CHECK_NE(a, b) BATON_CHECK_OP(a, !=, b)
#define CHECK_LT(a, b) BATON_CHECK_OP(a, <, b)
#define CHECK_LE(a, b) BATON_CHECK_OP(a, <=, b)
#define CHECK_GT(a, b) BATON_CHECK_OP(a, >, b)
#define CHECK_GE(a, b) BATON_CHECK_OP(a, >=, b)
