package org.falkirk;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.Comparator;

/**
 * Runs the tests of the classes that its arguments name, and writes one line per test: {@code org.falkirk.X.name ok}, or
 * {@code org.falkirk.X.name} with the failure.
 *
 * <p>A test is a public method without arguments of a class with a name that ends in {@code Test}. Each test has an object
 * of its own. `tests/unit/java/test_java.py` makes a case of pytest from each line.
 */
public final class Runner {
    private Runner() {}

    public static void main(String[] classes) throws ReflectiveOperationException {
        for (String name : classes) {
            Class<?> tests = Class.forName(name);
            Method[] methods = tests.getDeclaredMethods();
            Arrays.sort(methods, Comparator.comparing(Method::getName));
            for (Method method : methods) {
                if (Modifier.isPublic(method.getModifiers()) && method.getParameterCount() == 0) {
                    System.out.println(name + "." + method.getName() + " " + outcome(tests, method));
                }
            }
        }
    }

    private static String outcome(Class<?> tests, Method method) throws ReflectiveOperationException {
        try {
            method.invoke(tests.getDeclaredConstructor().newInstance());
            return "ok";
        } catch (InvocationTargetException failed) {
            Throwable cause = failed.getCause();
            return (cause + " at " + place(cause, tests)).replace('\n', ' ');
        }
    }

    private static String place(Throwable cause, Class<?> tests) {
        return Arrays.stream(cause.getStackTrace())
                .filter(frame -> frame.getClassName().startsWith(tests.getName()))
                .map(StackTraceElement::toString)
                .findFirst()
                .orElse("an unknown line");
    }
}
