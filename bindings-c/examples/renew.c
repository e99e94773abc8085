/* Long work under a short lease: renewed in the background, or by hand with a fixed lease. */
#include <onelock.h>
#include <stdio.h>
#include <time.h>

static void work_for_ms(long ms) {
    struct timespec span = {ms / 1000, (ms % 1000) * 1000000};
    nanosleep(&span, NULL);
}

int main(void) {
    onelock_error *error = NULL;
    onelock_client *client = NULL;
    onelock_lock_options *options = onelock_lock_options_new();
    onelock_lock *automatic = NULL, *fixed = NULL;
    onelock_lease *lease = NULL;
    int result = 1;

    if (onelock_client_connect(NULL, NULL, &client, &error) != ONELOCK_OK) goto done;

    /* a lease of 300 ms, held for 900 ms: renewal is on unless it is switched off */
    if (onelock_lock_options_set_ttl(options, 300, &error) != ONELOCK_OK) goto done;
    if (onelock_lock_new_str(client, ONELOCK_KIND_MUTEX, "example:renew", options, &automatic, &error) != ONELOCK_OK) goto done;
    if (onelock_lock_acquire(automatic, 5000, NULL, &lease, &error) != ONELOCK_OK) goto done;
    work_for_ms(900);
    printf("renewed in the background: %s\n", onelock_lease_is_held(lease) ? "still mine" : "lost");
    if (!onelock_lease_is_held(lease)) goto done;
    if (onelock_lease_release(lease, NULL, &error) != ONELOCK_OK) goto done;
    onelock_lease_free(lease);
    lease = NULL;

    /* a fixed lease ends unless it is extended in time */
    if (onelock_lock_options_set_auto_renew(options, false, &error) != ONELOCK_OK) goto done;
    if (onelock_lock_options_set_ttl(options, 1000, &error) != ONELOCK_OK) goto done;
    if (onelock_lock_new_str(client, ONELOCK_KIND_MUTEX, "example:renew", options, &fixed, &error) != ONELOCK_OK) goto done;
    if (onelock_lock_acquire(fixed, 5000, NULL, &lease, &error) != ONELOCK_OK) goto done;
    if (onelock_lease_extend(lease, 30000, &error) != ONELOCK_OK) goto done;
    printf("extended by hand: %lld s left\n", (long long)onelock_lease_remaining_ms(lease) / 1000);
    if (onelock_lease_release(lease, NULL, &error) == ONELOCK_OK) result = 0;

done:
    if (error != NULL) fprintf(stderr, "%s\n", onelock_error_message(error));
    onelock_error_free(error);
    onelock_lease_free(lease);
    onelock_lock_free(automatic);
    onelock_lock_free(fixed);
    onelock_lock_options_free(options);
    onelock_client_free(client);
    return result;
}
