/* Waits for a lock, does something, releases it. The address is in $ONELOCK_URL. */
#include <onelock.h>
#include <stdio.h>

int main(void) {
    onelock_error *error = NULL;
    onelock_client *client = NULL;
    onelock_lock *lock = NULL;
    onelock_lease *lease = NULL;
    int result = 1;

    if (onelock_client_connect(NULL, NULL, &client, &error) == ONELOCK_OK &&
        onelock_lock_new_str(client, ONELOCK_KIND_MUTEX, "example:acquire", NULL, &lock, &error) == ONELOCK_OK &&
        onelock_lock_acquire(lock, 5000, NULL, &lease, &error) == ONELOCK_OK) {
        printf("mine, with fencing token %llu\n", (unsigned long long)onelock_lease_fencing_token(lease));
        uint32_t outcome = 0;
        if (onelock_lease_release(lease, &outcome, &error) == ONELOCK_OK) {
            printf("released: %s\n", onelock_release_name(outcome));
            result = 0;
        }
    }
    if (error != NULL) fprintf(stderr, "%s\n", onelock_error_message(error));

    onelock_error_free(error);
    onelock_lease_free(lease);
    onelock_lock_free(lock);
    onelock_client_free(client);
    return result;
}
