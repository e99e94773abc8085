// Waits for a lock, does something, releases it. The address is in $ONELOCK_URL.
#include <onelock.hpp>

#include <iostream>

int main() try {
    using namespace std::chrono_literals;
    onelock::client client("");
    auto lease = client.lock("example:acquire").acquire(5s);
    std::cout << "mine, with fencing token " << lease.fencing_token() << "\n";
    lease.release();  // or leave the scope: then it is released in the background
    std::cout << "released\n";
} catch (const onelock::error &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
