// Puts our numbers on Triton's metrics endpoint.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "engine_client.hpp"
#include "triton.hpp"

namespace dragoman {

class Publisher : public Observer {
 public:
  Publisher() = default;
  ~Publisher() override;
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  void take_series(const Frame& frame) override;
  void take_metrics(const Engine& engine, const Frame& frame) override;
  // Counts restarts, and removes the gauges of engines that are gone.
  void take_table(const RoutingTable& table) override;
  void log_error(const std::string& text) noexcept override;

 private:
  struct Series {
    std::string kind, label;  // counter, gauge or share; the name of a label beside `model`, or nothing
    TRITONSERVER_MetricFamily* family = nullptr;
  };

  void show_gauge(const std::string& name, const std::string& model);
  void apply(const std::string& name, const std::string& model, const std::string& label, double amount);
  TRITONSERVER_Metric* metric(const std::string& name, const std::string& model, const std::string& label);

  std::map<std::string, Series> series_;
  std::map<std::tuple<std::string, std::string, std::string>, TRITONSERVER_Metric*> metrics_;  // name, model, label
  std::map<std::pair<std::string, std::string>, std::map<std::string, double>> gauges_;  // name and model: of each engine
  std::map<std::string, std::uint64_t> restarts_;
};

}  // namespace dragoman
