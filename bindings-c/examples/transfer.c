/* A transfer between two accounts, which are locked together: cc transfer.c $(pkg-config --cflags --libs onelock). The
 * address is in $ONELOCK_URL. */
#include <onelock.h>
#include <stdio.h>
#include <string.h>

static int failed(onelock_error *error) {
    fprintf(stderr, "%s\n", onelock_error_message(error));
    onelock_error_free(error);
    return 1;
}

int main(void) {
    const char *names[] = {"example:account:alice", "example:account:bob"};
    long balances[] = {100, 100};
    onelock_client *client = NULL;
    onelock_lock *locks[2] = {NULL, NULL}, *both = NULL;
    onelock_lease *lease = NULL;
    onelock_error *error = NULL;

    if (onelock_client_connect(NULL, NULL, &client, &error) != ONELOCK_OK) return failed(error);
    for (int i = 0; i < 2; i++) {
        if (onelock_lock_new_str(client, ONELOCK_KIND_MUTEX, names[i], NULL, &locks[i], &error) != ONELOCK_OK)
            return failed(error);
    }
    /* whoever names them in another order takes them in the same one */
    const onelock_lock *members[] = {locks[0], locks[1]};
    if (onelock_multi_new(members, 2, &both, &error) != ONELOCK_OK) return failed(error);

    if (onelock_lock_acquire(both, 5000, NULL, &lease, &error) != ONELOCK_OK) return failed(error);
    balances[0] -= 30;
    balances[1] += 30;
    for (int i = 0; i < 2; i++) {
        unsigned long long token = onelock_lease_fencing_token_of(lease, names[i], strlen(names[i]));
        printf("%s has %ld now, written with the fencing token %llu\n", names[i], balances[i], token);
    }
    if (onelock_lease_release(lease, NULL, &error) != ONELOCK_OK) return failed(error);
    /* also a loss that only the release found */
    if (onelock_lease_check_loss(lease, &error) != ONELOCK_OK) return failed(error);

    onelock_lease_free(lease);
    onelock_lock_free(both);
    for (int i = 0; i < 2; i++) onelock_lock_free(locks[i]);
    onelock_client_free(client);
    return 0;
}
