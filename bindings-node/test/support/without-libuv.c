/*
 * Preloaded into Node.js: whoever asks the dynamic linker for a function of libuv hears that there is none. Everything else
 * is as it was; Node.js itself was linked with libuv and does not ask.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void *dlsym(void *restrict library, const char *restrict name) {
    static void *(*real)(void *, const char *);
    /* the versions that this function has had, by processor and age of the C library */
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    for (size_t i = 0; !real && i < sizeof versions / sizeof *versions; i++)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (!real) abort();
    return real(library, strncmp(name, "uv_", 3) ? name : "no_such_function");
}
