/* A lock that survives the loss of a server: independent servers, held by whoever holds a majority of them. The address
 * is in $ONELOCK_URL: redlock://host1:6379,host2:6379,host3:6379. A server without an append-only file does not vote in the
 * first minute after it was started: it may have forgotten who holds what. */
#include <onelock.h>
#include <stdio.h>

int main(void) {
    onelock_error *error = NULL;
    onelock_client *client = NULL;
    onelock_lock *lock = NULL;
    int result = 1;

    if (onelock_client_connect(NULL, NULL, &client, &error) == ONELOCK_OK &&
        onelock_lock_new_str(client, ONELOCK_KIND_MUTEX, "example:redlock", NULL, &lock, &error) == ONELOCK_OK) {
        result = 0;
        for (int turn = 1; turn <= 3 && result == 0; turn++) {
            onelock_lease *lease = NULL;
            uint32_t outcome = 0;
            result = 1;
            if (onelock_lock_acquire(lock, 5000, NULL, &lease, &error) == ONELOCK_OK) {
                printf("turn %d: held by a majority, fencing token %llu\n", turn,
                       (unsigned long long)onelock_lease_fencing_token(lease));
                if (onelock_lease_release(lease, &outcome, &error) == ONELOCK_OK) {
                    printf("turn %d: %s\n", turn, onelock_release_name(outcome));
                    result = 0;
                }
            }
            onelock_lease_free(lease);
        }
    }
    if (error != NULL) {
        fprintf(stderr, "%s\n", onelock_error_message(error));
        /* what each server said */
        for (size_t node = 0; node < onelock_error_cause_count(error); node++)
            fprintf(stderr, "  %s\n", onelock_error_cause(error, node));
    }

    onelock_error_free(error);
    onelock_lock_free(lock);
    onelock_client_free(client);
    return result;
}
