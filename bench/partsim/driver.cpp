// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Runs a task set in PARTSim's libraries, and says when each job arrived and ended.
 *
 *   driver SYSTEM SET DURATION [TRACE]
 *
 * PARTSim's own command, rtsim, gives no priorities to its tasks, so that fixed priorities need a
 * program beside it. SYSTEM is PARTSim's description of the hardware; its first kernel has the
 * tasks. TRACE is written by PARTSim's own TextTrace. SET has a line for each server, which come
 * first, and for each task; times are ticks:
 *
 *   server NAME BUDGET PERIOD SCHEDULER
 *   task NAME COST PERIOD DEADLINE OFFSET PRIORITY SERVER
 *
 * SERVER is - for a task without one. Standard output has the CPU time of the simulation in ns,
 * without what comes before and after, and then a line for each job that ended: its task, its
 * arrival, and its end.
 */
#include <cstdint>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <metasim/particle.hpp>
#include <metasim/simul.hpp>
#include <rtsim/cbserver.hpp>
#include <rtsim/kernel.hpp>
#include <rtsim/rttask.hpp>
#include <rtsim/system.hpp>
#include <rtsim/taskevt.hpp>
#include <rtsim/texttrace.hpp>

namespace
{

/// Jobs of a task that may wait behind a late one; PARTSim forgets those beyond.
constexpr long QUEUE = 1'000'000'000;

struct Ended {
    RTSim::Task *task;
    std::int64_t arrival, end;
};

/// Keeps the end of each job in memory.
class Jobs
{
  public:
    void probe(RTSim::EndEvt &event)
    {
        RTSim::Task *task = event.getTask();
        ended.push_back({task, std::int64_t(task->getArrival()),
                         std::int64_t(MetaSim::Simulation::getInstance().getTime())});
    }

    std::vector<Ended> ended;
};

class Set
{
  public:
    Set(std::istream &text, RTSim::RTKernel &kernel)
    {
        std::string line;
        while (std::getline(text, line)) {
            std::istringstream words(line);
            std::string kind;
            words >> kind;
            if (kind == "server")
                server(words, kernel);
            else if (kind == "task")
                task(words, kernel);
            else
                throw std::runtime_error("no server and no task: " + line);
            if (!words)
                throw std::runtime_error("words are missing: " + line);
        }
    }

    std::vector<std::unique_ptr<RTSim::PeriodicTask>> tasks;

  private:
    void server(std::istream &words, RTSim::RTKernel &kernel)
    {
        std::string name, scheduler;
        std::int64_t budget = 0, period = 0;
        words >> name >> budget >> period >> scheduler;
        auto made =
            std::make_unique<RTSim::CBServer>(budget, period, period, true, name, scheduler);
        kernel.addTask(*made, "");
        servers[name] = std::move(made);
    }

    void task(std::istream &words, RTSim::RTKernel &kernel)
    {
        std::string name, priority, server;
        std::int64_t cost = 0, period = 0, deadline = 0, offset = 0;
        words >> name >> cost >> period >> deadline >> offset >> priority >> server;
        auto made = std::make_unique<RTSim::PeriodicTask>(period, deadline, offset, name, QUEUE);
        made->insertCode("fixed(" + std::to_string(cost) + ",work);");
        if (server == "-")
            kernel.addTask(*made, priority);
        else
            servers.at(server)->addTask(*made, priority);
        tasks.push_back(std::move(made));
    }

    std::map<std::string, std::unique_ptr<RTSim::CBServer>> servers;
};

/// CPU time of this process.
std::int64_t cpu_ns()
{
    timespec time{};
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) != 0)
        throw std::runtime_error("there is no clock of CPU time");
    return time.tv_sec * INT64_C(1'000'000'000) + time.tv_nsec;
}

int run(int count, char **words)
{
    if (count < 4 || count > 5)
        throw std::runtime_error("usage: driver SYSTEM SET DURATION [TRACE]");
    // PARTSim says on standard output what it does.
    std::ostream out(std::cout.rdbuf());
    std::cout.rdbuf(nullptr);

    RTSim::System system(words[1]);
    std::ifstream text(words[2]);
    if (!text)
        throw std::runtime_error(std::string("cannot read ") + words[2]);
    Set set(text, *system.kernels.at(0));

    std::unique_ptr<RTSim::TextTrace> trace;
    if (count == 5)
        trace = std::make_unique<RTSim::TextTrace>(words[4]);
    Jobs jobs;
    for (auto &task : set.tasks) {
        if (trace)
            trace->attachToTask(*task);
        MetaSim::attach_stat(jobs, task->endEvt);
    }

    const std::int64_t start = cpu_ns();
    MetaSim::Simulation::getInstance().run(MetaSim::Tick(std::int64_t(std::stoll(words[3]))));
    const std::int64_t took = cpu_ns() - start;

    out << "cpu_ns " << took << '\n';
    for (const Ended &job : jobs.ended)
        out << job.task->getName() << ' ' << job.arrival << ' ' << job.end << '\n';
    out.flush();
    return out ? 0 : 1;
}

} // namespace

int main(int count, char **words)
{
    try {
        return run(count, words);
    } catch (const std::exception &error) {
        std::cerr << "driver: " << error.what() << '\n';
        return 2;
    }
}
