#include "base/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "base/check.h"

namespace baton {

void Counter::add(double count) {
  series_->Increment(count);
}
void Gauge::set(double value) {
  series_->Set(value);
}
void Gauge::add(double delta) {
  series_->Increment(delta);
}
void Histogram::observe(double value) {
  series_->Observe(value);
}

class MetricRegistry::Impl {
 public:
  Impl(MetricLabels common, std::vector<MetricInfo> infos, bool aliases)
      : aliases_(aliases), common_(std::move(common)) {
    for (MetricInfo& info : infos) {
      const std::string name = info.name;
      CHECK(infos_.emplace(name, std::move(info)).second);
    }
  }

  const MetricInfo& find(const std::string& name, MetricType type, const MetricLabels& labels) {
    const auto found = infos_.find(name);
    CHECK(found != infos_.end() && "the series is in no table of metrics");
    const MetricInfo& info = found->second;
    CHECK_EQ(static_cast<int>(info.type), static_cast<int>(type));
    CHECK_EQ(info.labels.size(), labels.size());
    for (const std::string& label : info.labels) CHECK_EQ(labels.count(label), size_t{1});
    return info;
  }

  MetricLabels with_common(MetricLabels labels) const {
    labels.insert(common_.begin(), common_.end());
    return labels;
  }

  std::vector<prometheus::MetricFamily> families() const {
    std::vector<prometheus::MetricFamily> families = registry.Collect();
    if (!aliases_) return families;
    for (size_t i = 0, count = families.size(); i < count; ++i) {
      for (const std::string& alias : infos_.at(families[i].name).aliases) {
        prometheus::MetricFamily same = families[i];
        same.name = alias;
        families.push_back(std::move(same));
      }
    }
    return families;
  }

  // Asking for a family again gives the one that is there.
  prometheus::Registry registry{prometheus::Registry::InsertBehavior::Merge};

 private:
  const bool aliases_;
  const MetricLabels common_;
  std::map<std::string, MetricInfo> infos_;  // by name; constant after construction
};

MetricRegistry::MetricRegistry(MetricLabels common, std::vector<MetricInfo> infos, bool aliases)
    : impl_(std::make_unique<Impl>(std::move(common), std::move(infos), aliases)) {}

MetricRegistry::~MetricRegistry() = default;

Counter MetricRegistry::counter(const std::string& name, const MetricLabels& labels) {
  const MetricInfo& info = impl_->find(name, MetricType::kCounter, labels);
  auto& family = prometheus::BuildCounter().Name(name).Help(info.help).Register(impl_->registry);
  return Counter(family.Add(impl_->with_common(labels)));
}

Gauge MetricRegistry::gauge(const std::string& name, const MetricLabels& labels) {
  const MetricInfo& info = impl_->find(name, MetricType::kGauge, labels);
  auto& family = prometheus::BuildGauge().Name(name).Help(info.help).Register(impl_->registry);
  return Gauge(family.Add(impl_->with_common(labels)));
}

Histogram MetricRegistry::histogram(const std::string& name, const MetricLabels& labels) {
  const MetricInfo& info = impl_->find(name, MetricType::kHistogram, labels);
  auto& family = prometheus::BuildHistogram().Name(name).Help(info.help).Register(impl_->registry);
  return Histogram(family.Add(impl_->with_common(labels), info.edges));
}

std::string MetricRegistry::text() const {
  return prometheus::TextSerializer().Serialize(impl_->families());
}

}  // namespace baton
