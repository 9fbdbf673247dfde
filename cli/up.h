// `baton up`: a router and its workers on this host, from one command; restarts what exits; drains
// on SIGTERM and Ctrl-C.
#pragma once

namespace CLI {
class App;
}

namespace baton {

void add_up_command(CLI::App& app);

}  // namespace baton
