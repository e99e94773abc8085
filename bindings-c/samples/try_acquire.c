/* A nightly job that runs on many machines: whoever comes first does it, the others go on. */
#include <onelock.h>
#include <stdio.h>

int main(void) {
    onelock_error *error = NULL;
    onelock_client *client = NULL;
    onelock_lock *lock = NULL;
    onelock_lease *mine = NULL, *theirs = NULL;
    int result = 1;

    if (onelock_client_connect(NULL, NULL, &client, &error) != ONELOCK_OK) goto done;
    if (onelock_lock_new_str(client, ONELOCK_KIND_MUTEX, "sample:nightly", NULL, &lock, &error) != ONELOCK_OK) goto done;

    if (onelock_lock_try_acquire(lock, &mine, &error) != ONELOCK_OK) goto done;
    printf("first: I do it\n");

    /* the next one finds it busy, which is an answer and not a fault */
    onelock_status status = onelock_lock_try_acquire(lock, &theirs, NULL);
    if (status == ONELOCK_ERR_BUSY) {
        printf("second: somebody else does it\n");
        result = 0;
    }

done:
    if (error != NULL) fprintf(stderr, "%s\n", onelock_error_message(error));
    onelock_error_free(error);
    onelock_lease_free(theirs);
    onelock_lease_free(mine); /* freed without a release: given back in the background, and before exit */
    onelock_lock_free(lock);
    onelock_client_free(client);
    return result;
}
