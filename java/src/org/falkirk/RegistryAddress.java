package org.falkirk;

import java.io.Serializable;

/**
 * How tasks reach a schema registry.
 *
 * @param url without a slash at its end, and without secrets
 * @param authorization the header of each request; null: none
 * @param authorities certificates in PEM form; null: those that Java trusts
 */
public record RegistryAddress(String url, String authorization, String authorities) implements Serializable {
  private static final long serialVersionUID = 1L;

  /** Returns the URL alone: Spark prints this text in plans. */
  @Override
  public String toString() {
    return url;
  }
}
