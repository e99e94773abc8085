/* A word with the server itself, over a connection of the test's own. */
#ifndef SERVER_H
#define SERVER_H

#include "check.h"

#include <arpa/inet.h>
#include <sys/socket.h>

/* Sends one inline command and returns the beginning of the reply, NUL-terminated. */
static inline void ask_server(const char *command, char *reply, size_t size) {
    int port = atoi(strrchr(getenv("ONELOCK_URL"), ':') + 1);
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(connection, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(write(connection, command, strlen(command)) == (ssize_t)strlen(command));
    ssize_t length = read(connection, reply, size - 1);
    CHECK(length > 0);
    reply[length] = 0;
    close(connection);
}

#endif
