// Reads the fields of a request's JSON object into typed values. The first complaint wins and names
// the field, what was found and what is wanted; null means absent. Text threads.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/messages.h"
#include "base/status.h"
#include "router/json_text.h"

namespace baton {

// A short rendering of a value for error messages.
std::string shown(const Json& value);

class FieldReader {
 public:
  explicit FieldReader(const Json& object) : object_(object) {}

  const Json* find(const char* name) const;  // null when the field is absent or null

  // Each leaves `out` as it is when the field is absent.
  void boolean(const char* name, bool& out);
  // `setting`: the name of the setting that bounds it, for the complaint.
  void integer(const char* name, int32_t& out, int64_t min, int64_t max,
               const std::string& setting = {});
  void integer64(const char* name, int64_t& out, int64_t min, int64_t max,
                 const std::string& setting = {});
  // `above_min`: the minimum itself is refused.
  void number(const char* name, float& out, double min, double max, bool above_min = false);
  void text(const char* name, std::string& out, size_t bytes_max = SIZE_MAX);
  void token_ids(const char* name, std::vector<TokenId>& out, int32_t vocab_size,
                 size_t count_max = SIZE_MAX);

  void complain(const std::string& subject, const std::string& got, const std::string& want);
  void refuse(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const Status& status() const { return status_; }

 private:
  const Json& object_;
  Status status_;
};

// One token id out of JSON; complains as `subject`.
TokenId read_token_id(const Json& value, const std::string& subject, int32_t vocab_size,
                      FieldReader& reader);

}  // namespace baton
