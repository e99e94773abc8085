# frozen_string_literal: true

module Onelock
  # Functions of the program that give user name and password of each new connection.
  module Credentials
    @providers = {}
    @numbers = 0
    @lock = Mutex.new

    # Runs on a thread that FFI makes for each request.
    ASK = FFI::Function.new(:void, %i[pointer pointer]) { |request, number| answer(request, @providers[number.address]) }
    # The library has no more use for it.
    DROP = FFI::Function.new(:void, [:pointer]) { |number| @providers.delete(number.address) }
    [ASK, DROP].each { |function| function.autorelease = false }

    class << self
      # Sets it on options of a client.
      def set(options, provider)
        raise InvalidArgument, "credentials: a #{provider.class} has no `call`" unless provider.respond_to?(:call)

        number = @lock.synchronize { @numbers += 1 }
        @providers[number] = provider
        Native.call(:client_options_set_credentials, options, ASK, FFI::Pointer.new(number), DROP)
      end

      private

      def answer(request, provider)
        username, password = provider.call.then { |found| found.is_a?(Array) ? found : [nil, found] }
        username = Arguments.text(username, "the user name that credentials gave") unless username.nil?
        password = Arguments.text(password, "the password that credentials gave")
        Native.credentials_request_answer(request, username, password, nil)
      rescue Exception => e # rubocop:disable Lint/RescueException
        Native.credentials_request_fail(request, "credentials raised #{e.class}: #{e.message}".delete("\0"), nil)
      ensure
        # does nothing when it was answered
        Native.credentials_request_free(request)
      end
    end
  end
  private_constant :Credentials
end
